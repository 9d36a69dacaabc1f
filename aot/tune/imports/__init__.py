"""Conversion of other tools' measurements to tuned tables."""
