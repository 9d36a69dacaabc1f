"""Provenance statements, which say what a bundle was built from: `write_statement` writes, `statement` reads."""
