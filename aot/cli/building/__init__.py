"""Run and results of ``nojit build``; `nojit.aot.cli.commands.build` has its options."""
