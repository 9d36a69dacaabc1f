"""From recordings to builds: plans, coverage and manifests of a program's launches."""
