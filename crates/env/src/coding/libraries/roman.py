"""Roman numbers from 1 to 3999."""

VALUES = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"),
          (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]


def to_roman(number):
    """Returns a number as Roman digits."""
    if number < 1 or number > 3999:
        raise ValueError("out of range")
    digits = ""
    for value, letters in VALUES:
        while number >= value:
            digits = digits + letters
            number = number - value
    return digits


def from_roman(digits):
    """Returns the value of Roman digits."""
    total = 0
    place = 0
    for value, letters in VALUES:
        while digits[place:place + len(letters)] == letters:
            total = total + value
            place = place + len(letters)
    return total


def is_roman(text):
    """Tells whether a text is a Roman number as it is usually written."""
    if text == "":
        return False
    value = from_roman(text)
    return value >= 1 and value <= 3999 and to_roman(value) == text
