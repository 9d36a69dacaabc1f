"""The facts of a call that select its variant: arguments, constexprs and options."""
