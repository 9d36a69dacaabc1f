"""The part of the build that imports Triton. It runs in processes of its own; only backends of vendors import Triton as well."""
