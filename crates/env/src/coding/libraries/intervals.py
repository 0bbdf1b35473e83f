"""Closed intervals of whole numbers, as pairs (low, high)."""


def length(interval):
    """Returns how many numbers an interval has."""
    low, high = interval
    if high < low:
        return 0
    return high - low + 1


def overlap(first, second):
    """Returns the numbers that two intervals share, or None."""
    low = max(first[0], second[0])
    high = min(first[1], second[1])
    if low > high:
        return None
    return (low, high)


def merge(intervals):
    """Joins intervals that overlap or touch, in order."""
    merged = []
    for low, high in sorted(intervals):
        if merged and low <= merged[-1][1] + 1:
            before = merged[-1]
            merged[-1] = (before[0], max(before[1], high))
        else:
            merged.append((low, high))
    return merged


def covers(intervals, number):
    """Tells whether a number is in one of the intervals."""
    for low, high in intervals:
        if low <= number and number <= high:
            return True
    return False


def gaps(intervals):
    """Returns the intervals between merged intervals."""
    found = []
    joined = merge(intervals)
    for index in range(1, len(joined)):
        found.append((joined[index - 1][1] + 1, joined[index][0] - 1))
    return found
