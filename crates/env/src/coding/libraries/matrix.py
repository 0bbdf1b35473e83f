"""Matrices as lists of rows."""


def identity(size):
    """Returns a matrix with ones on its diagonal."""
    return [[1 if row == column else 0 for column in range(size)] for row in range(size)]


def transpose(matrix):
    """Swaps rows and columns."""
    if matrix == []:
        return []
    return [[row[column] for row in matrix] for column in range(len(matrix[0]))]


def add(left, right):
    """Adds two matrices of the same shape."""
    result = []
    for index in range(len(left)):
        result.append([a + b for a, b in zip(left[index], right[index])])
    return result


def multiply(left, right):
    """Multiplies two matrices."""
    result = []
    for row in left:
        line = []
        for column in transpose(right):
            total = 0
            for a, b in zip(row, column):
                total = total + a * b
            line.append(total)
        result.append(line)
    return result


def power(matrix, exponent):
    """Multiplies a square matrix with itself."""
    result = identity(len(matrix))
    while exponent > 0:
        if exponent % 2 == 1:
            result = multiply(result, matrix)
        matrix = multiply(matrix, matrix)
        exponent = exponent // 2
    return result


def trace(matrix):
    """Returns the sum of the diagonal."""
    total = 0
    for index in range(len(matrix)):
        total = total + matrix[index][index]
    return total


def is_symmetric(matrix):
    """Tells whether a matrix is its own transpose."""
    return matrix == transpose(matrix)
