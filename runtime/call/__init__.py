"""Calls as facts: arguments, constexprs and options, as selection needs them."""
