"""Processes of a build: a process that runs calls, pools of workers, and one process for each kernel source."""
