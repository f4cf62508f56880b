"""The main job in a few minutes: train from random data, with and without the correction, and look."""
