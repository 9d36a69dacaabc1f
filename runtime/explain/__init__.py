"""Explanations of selections: why variants serve a call or not, and what to build."""
