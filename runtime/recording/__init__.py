"""Recordings: the kernel calls of a program, with everything that a build needs to compile them again."""
