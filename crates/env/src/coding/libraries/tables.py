"""Tables of comma-separated values."""


def split_line(line):
    """Splits a line at commas; in double quotes they do not count, and two quotes are one."""
    fields = []
    field = ""
    quoted = False
    place = 0
    while place < len(line):
        letter = line[place]
        if letter == '"':
            if quoted and line[place + 1:place + 2] == '"':
                field = field + '"'
                place = place + 1
            else:
                quoted = not quoted
        elif letter == "," and not quoted:
            fields.append(field)
            field = ""
        else:
            field = field + letter
        place = place + 1
    fields.append(field)
    return fields


def read(text):
    """Returns the rows below the first line as dictionaries."""
    lines = [line for line in text.split("\n") if line.strip() != ""]
    if lines == []:
        return []
    names = split_line(lines[0])
    return [dict(zip(names, split_line(line))) for line in lines[1:]]


def total(rows, name):
    """Adds the whole numbers of a column; others count nothing."""
    result = 0
    for row in rows:
        value = row.get(name, "").strip()
        if value.isdigit() or (value[:1] == "-" and value[1:].isdigit()):
            result = result + int(value)
    return result


def group(rows, name):
    """Returns the number of rows for each value of a column."""
    groups = {}
    for row in rows:
        key = row.get(name, "")
        groups[key] = groups.get(key, 0) + 1
    return groups


def largest(rows, name):
    """Returns the first row with the largest whole number in a column."""
    best = None
    for row in rows:
        if best is None or int(row[name]) > int(best[name]):
            best = row
    return best
