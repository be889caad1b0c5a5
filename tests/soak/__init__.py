"""Thousands of short programs on a real engine, some of them broken: does anything stay behind?"""
