// Links libnojit from the folder that `nojit config --lib-dir` prints, or from NOJIT_LIB_DIR.
use std::{env, process::Command};

fn main() {
    let folder = env::var("NOJIT_LIB_DIR").unwrap_or_else(|_| {
        let asked = Command::new("nojit").args(["config", "--lib-dir"]).output();
        let found = asked.expect("expected nojit on the PATH, or NOJIT_LIB_DIR to be set").stdout;
        String::from_utf8(found).expect("expected a path").trim().to_string()
    });
    println!("cargo:rerun-if-env-changed=NOJIT_LIB_DIR");
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:rustc-link-lib=dylib=nojit");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
}
