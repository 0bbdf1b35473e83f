"""Ways and counts on grids of text, one line a row; `#` is a wall."""


def neighbours(grid, row, column):
    """Returns the free fields beside a field, in the order up, left, right, down."""
    found = []
    for down, right in [(-1, 0), (0, -1), (0, 1), (1, 0)]:
        r = row + down
        c = column + right
        if r >= 0 and r < len(grid) and c >= 0 and c < len(grid[r]) and grid[r][c] != "#":
            found.append((r, c))
    return found


def distance(grid, start, goal):
    """Returns the steps of a shortest way, or -1."""
    steps = {start: 0}
    queue = [start]
    while queue:
        field = queue.pop(0)
        if field == goal:
            return steps[field]
        for other in neighbours(grid, field[0], field[1]):
            if other not in steps:
                steps[other] = steps[field] + 1
                queue.append(other)
    return -1


def rooms(grid):
    """Returns the sizes of connected free areas, the largest first."""
    seen = set()
    sizes = []
    for row in range(len(grid)):
        for column in range(len(grid[row])):
            if grid[row][column] == "#" or (row, column) in seen:
                continue
            size = 0
            stack = [(row, column)]
            seen.add((row, column))
            while stack:
                field = stack.pop()
                size = size + 1
                for other in neighbours(grid, field[0], field[1]):
                    if other not in seen:
                        seen.add(other)
                        stack.append(other)
            sizes.append(size)
    return sorted(sizes, reverse=True)


def paths(width, height):
    """Returns the number of ways from corner to corner, right and down only."""
    ways = [1] * width
    for _ in range(1, height):
        for column in range(1, width):
            ways[column] = ways[column] + ways[column - 1]
    return ways[-1]
