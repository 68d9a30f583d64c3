"""Figures: what a script adds up, collects, averages and shows of its batches, in training and evaluation."""
