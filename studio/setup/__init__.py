"""Set-up of a machine: a virtual environment with the CPU or the CUDA set. Standard library only.

It runs before anything is installed, so nothing here imports another room, and an older Python 3 can read it
far enough to say which Python is needed.
"""
