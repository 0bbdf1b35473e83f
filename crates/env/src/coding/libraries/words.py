"""Words and lines of texts."""


def count(text):
    """Returns how often each word occurs, in lower case."""
    counts = {}
    for word in text.lower().split():
        word = word.strip(".,!?")
        if word != "":
            counts[word] = counts.get(word, 0) + 1
    return counts


def most_common(text, number):
    """Returns the most frequent words; equal ones in the order of the alphabet."""
    counts = count(text)
    ordered = sorted(counts, key=lambda word: (0 - counts[word], word))
    return ordered[:number]


def wrap(text, width):
    """Breaks a text into lines of at most so many characters."""
    lines = []
    line = ""
    for word in text.split():
        if line == "":
            line = word
        elif len(line) + 1 + len(word) <= width:
            line = line + " " + word
        else:
            lines.append(line)
            line = word
    if line != "":
        lines.append(line)
    return lines


def is_palindrome(text):
    """Tells whether letters and digits read the same from both ends."""
    kept = [letter for letter in text.lower() if letter.isalnum()]
    left = 0
    right = len(kept) - 1
    while left < right:
        if kept[left] != kept[right]:
            return False
        left = left + 1
        right = right - 1
    return True


def title(text):
    """Writes each word with a capital letter, but not short ones inside."""
    words = text.lower().split()
    for index in range(len(words)):
        if index == 0 or len(words[index]) > 3:
            words[index] = words[index][0].upper() + words[index][1:]
    return " ".join(words)
