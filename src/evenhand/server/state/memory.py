"""The state of one process, in its memory; also what goes on counting while a shared state is down."""

from __future__ import annotations

from collections import OrderedDict

from evenhand.server.state.account import Account
from evenhand.server.state.types import FORGET_SECONDS, Admit, AllSpent, Settle, Verdict, WrongKey

MOST_ADDRESSES = 10_000


class Memory:
    """Accounts by key, which come from the config, and wrong keys by address, which are bounded."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def admit(self, ask: Admit) -> Verdict:
        return self._account(ask.key).admit(ask)

    def settle(self, end: Settle) -> None:
        self._account(end.key).settle(end)

    def wrong_key(self, wrong: WrongKey) -> int:
        before, at = self._wrong.pop(wrong.address, (0, wrong.at))
        row = 1 + (before if wrong.at - at < FORGET_SECONDS else 0)
        self._wrong[wrong.address] = row, wrong.at
        if len(self._wrong) > MOST_ADDRESSES:
            self._wrong.popitem(last=False)
        return row

    def spent(self) -> AllSpent:
        return {key: account.spent for key, account in self._accounts.items() if account.spent}

    def _account(self, key: str) -> Account:
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account()
        return account
