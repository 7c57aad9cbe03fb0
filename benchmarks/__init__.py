"""Each figure that the documentation names is made by one command here: `make bench`. They gate nothing."""
