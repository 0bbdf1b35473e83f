"""Days, months and years."""

LENGTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


def is_leap(year):
    """Tells whether a year has a 29th of February."""
    if year % 400 == 0:
        return True
    return year % 4 == 0 and year % 100 != 0


def days_in(year, month):
    """Returns the days of a month, counted from 1."""
    if month == 2 and is_leap(year):
        return 29
    return LENGTHS[month - 1]


def day_of_year(year, month, day):
    """Returns the number of a day in its year, from 1."""
    total = day
    for earlier in range(1, month):
        total = total + days_in(year, earlier)
    return total


def is_date(year, month, day):
    """Tells whether there is such a day."""
    if month < 1 or month > 12:
        return False
    return day >= 1 and day <= days_in(year, month)


def next_day(year, month, day):
    """Returns the day after."""
    if day < days_in(year, month):
        return (year, month, day + 1)
    if month < 12:
        return (year, month + 1, 1)
    return (year + 1, 1, 1)


def between(first, last):
    """Returns the days from one date to a later one."""
    days = 0
    date = first
    while date < last:
        date = next_day(date[0], date[1], date[2])
        days = days + 1
    return days


def weekday(year, month, day):
    """Returns the day of the week, Monday is 0."""
    return (between((2000, 1, 1), (year, month, day)) + 5) % 7
