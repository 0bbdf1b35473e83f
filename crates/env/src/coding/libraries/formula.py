"""Arithmetic in text: whole numbers, + - * and parentheses."""


def tokens(text):
    """Splits a formula into numbers and signs."""
    found = []
    number = ""
    for letter in text + " ":
        if letter.isdigit():
            number = number + letter
            continue
        if number != "":
            found.append(int(number))
            number = ""
        if letter in "+-*()":
            found.append(letter)
    return found


def parse_sum(parts):
    """Reads products that are added or subtracted."""
    value = parse_product(parts)
    while parts and parts[0] in ("+", "-"):
        sign = parts.pop(0)
        right = parse_product(parts)
        if sign == "+":
            value = value + right
        else:
            value = value - right
    return value


def parse_product(parts):
    """Reads factors that are multiplied."""
    value = parse_factor(parts)
    while parts and parts[0] == "*":
        parts.pop(0)
        value = value * parse_factor(parts)
    return value


def parse_factor(parts):
    """Reads a number, a sign before a factor, or a formula in parentheses."""
    part = parts.pop(0)
    if part == "-":
        return 0 - parse_factor(parts)
    if part == "(":
        value = parse_sum(parts)
        parts.pop(0)
        return value
    return part


def evaluate(text):
    """Returns the value of a formula."""
    parts = tokens(text)
    value = parse_sum(parts)
    if parts != []:
        raise ValueError("cannot be read")
    return value
