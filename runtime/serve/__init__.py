"""Serve unmodified Triton programs from bundles: ``fn[grid](...)`` launches what was built from a recording."""
