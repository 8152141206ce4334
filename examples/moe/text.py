"""Text to learn from: sums in words. It follows from the seed alone."""

import random

_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def words(number: int) -> str:
    """Of a number below 200."""
    if number >= 100:
        return "one hundred" + (f" and {words(number - 100)}" if number > 100 else "")
    if number < 20:
        return _ONES[number]
    return _TENS[number // 10] + (f"-{_ONES[number % 10]}" if number % 10 else "")


def sums(lines: int, seed: int) -> str:
    numbers = random.Random(seed)
    pairs = [(numbers.randrange(100), numbers.randrange(100)) for _ in range(lines)]
    return "".join(f"{words(left)} plus {words(right)} is {words(left + right)}.\n" for left, right in pairs)
