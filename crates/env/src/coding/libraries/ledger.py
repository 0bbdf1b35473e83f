"""Accounts with deposits and withdrawals in cents."""


class Ledger:
    """Accounts by name."""

    def __init__(self, limit=0):
        self.limit = limit
        self.balances = {}
        self.history = []

    def deposit(self, name, cents):
        """Adds to an account."""
        if cents <= 0:
            return False
        self.balances[name] = self.balances.get(name, 0) + cents
        self.history.append((name, cents))
        return True

    def withdraw(self, name, cents):
        """Takes from an account, down to the limit below zero."""
        if cents <= 0 or self.balance(name) - cents < 0 - self.limit:
            return False
        self.balances[name] = self.balance(name) - cents
        self.history.append((name, 0 - cents))
        return True

    def transfer(self, source, target, cents):
        """Moves money if the source has it."""
        if source == target or not self.withdraw(source, cents):
            return False
        return self.deposit(target, cents)

    def balance(self, name):
        """Returns the money of an account."""
        return self.balances.get(name, 0)

    def total(self):
        """Returns the money of all accounts."""
        return sum(self.balances.values())

    def fees(self, name, share):
        """Returns so many per cent of all withdrawals, rounded down."""
        taken = 0
        for owner, cents in self.history:
            if owner == name and cents < 0:
                taken = taken - cents
        return taken * share // 100


def replay(steps, limit=0):
    """Carries out steps on a new ledger; results and balances."""
    ledger = Ledger(limit)
    results = [getattr(ledger, name)(*values) for name, *values in steps]
    return results, ledger.balances, ledger.total()
