//! Adds two vectors with a kernel of a bundle: `launch BUNDLE [--no-check]`, where the bundle is that of examples/vector_add.
mod driver;
mod nojit;

use driver::Driver;
use nojit::{Arg, Bundle};
use std::{env, error::Error, process};

const LENGTH: usize = 100_000;

fn run(path: &str, checks: bool) -> Result<(), Box<dyn Error>> {
    let driver = Driver::open()?;
    driver.use_device(0)?;
    let bundle = Bundle::open(path)?;
    println!("kernels: {}", bundle.kernels().join(", "));
    let x: Vec<f32> = (0..LENGTH).map(|i| i as f32).collect();
    let (on_x, on_y, out) = (driver.copy(&x)?, driver.copy(&x)?, driver.copy(&vec![0f32; LENGTH])?);
    let args = [Arg::fp32(on_x), Arg::fp32(on_y), Arg::fp32(out), Arg::int(LENGTH as i64)];
    unsafe { bundle.kernel("vector_add")?.launch(&args)? };
    let sums = driver.read(out, LENGTH)?;
    if checks && sums.iter().enumerate().any(|(i, sum)| *sum != 2.0 * i as f32) {
        return Err("expected the sums of both vectors".into());
    }
    println!("added {LENGTH} numbers");
    Ok(())
}

fn main() {
    let words: Vec<String> = env::args().collect();
    if words.len() < 2 {
        eprintln!("usage: launch BUNDLE [--no-check]");
        process::exit(2);
    }
    if let Err(error) = run(&words[1], words.get(2).map(String::as_str) != Some("--no-check")) {
        eprintln!("error: {error}");
        process::exit(1);
    }
}
