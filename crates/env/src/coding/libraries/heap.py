"""A queue that gives its smallest entry first, and orders made with it."""


class Heap:
    """A binary heap in a list."""

    def __init__(self, entries=()):
        self.entries = []
        for entry in entries:
            self.push(entry)

    def push(self, entry):
        """Adds an entry."""
        self.entries.append(entry)
        place = len(self.entries) - 1
        while place > 0:
            parent = (place - 1) // 2
            if self.entries[parent] <= self.entries[place]:
                break
            self.swap(parent, place)
            place = parent

    def pop(self):
        """Takes the smallest entry out, or returns None."""
        if self.entries == []:
            return None
        self.swap(0, len(self.entries) - 1)
        smallest = self.entries.pop()
        place = 0
        while True:
            child = 2 * place + 1
            if child >= len(self.entries):
                break
            if child + 1 < len(self.entries) and self.entries[child + 1] < self.entries[child]:
                child = child + 1
            if self.entries[place] <= self.entries[child]:
                break
            self.swap(place, child)
            place = child
        return smallest

    def swap(self, a, b):
        """Swaps two entries."""
        self.entries[a], self.entries[b] = self.entries[b], self.entries[a]


def smallest(values, count):
    """Returns the smallest values in order."""
    heap = Heap(values)
    return [heap.pop() for _ in range(min(count, len(values)))]


def median(values):
    """Returns the middle value, or the mean of the two in the middle."""
    ordered = smallest(values, len(values))
    middle = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
