"""The words that the tiny checkpoint's answers are made of."""

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
COLOURS = ("red", "green", "blue", "yellow", "white", "purple")
SHAPES = ("circle", "square", "triangle", "cross")
