"""The commands, one module for each concern; imported only when called."""
