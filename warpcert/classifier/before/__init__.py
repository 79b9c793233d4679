"""What stands before the network: a front, and what is rounded to levels."""
