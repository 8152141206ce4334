"""The reasons of `threefs health`: what of a cluster needs people, and what they do about it. Pure."""
