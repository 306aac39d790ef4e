#!/usr/bin/env python3
"""Writes prompts.jsonl: 100 openings of four kinds, 25 each, for benches and tests.

The sentences are this project's own; none is from a training text. Every run writes the same file.
"""

import json
import pathlib
import random

NAMES = ["Harriet", "Edmund", "Clara", "Tobias", "Agnes", "Rupert", "Margaret", "Philip", "Nell", "Silas"]
SURNAMES = ["Ashworth", "Pell", "Thornley", "Garrick", "Maddox", "Wynter", "Corbett", "Lisle"]
PLACES = ["the harbour", "the old mill", "the rectory", "the schoolhouse", "the inn", "the moor", "the quarry"]
THINGS = ["a brass key", "a sealed letter", "a torn map", "a silver watch", "a lantern", "a small black book"]
BEASTS = ["a fox", "a heron", "an old badger", "a lame wolf", "a hedgehog", "a grey goose"]
DRINKS = ["a large latte", "two flat whites", "an iced tea", "a small cappuccino", "a hot chocolate"]
FOODS = ["apples", "pencils", "marbles", "stickers", "muffins", "oranges", "shells"]

BOOKS = [
    "The rain had not ceased since noon, and {name} {surname} stood at the window of {place}, turning {thing} over and over in one hand. \"He will come,\" said the old man by the fire, \"or he will send word.\"",
    "It was past nine o'clock when the coach drew up before {place}. {name} climbed down stiffly, paid the driver, and asked whether Mr. {surname} was at home.",
    "\"You are mistaken,\" said {name}, rising from the table. \"I never saw {thing} until this morning, and I am sure that no one in this house ever did.\"",
    "Captain {surname} walked twice round the deck before he spoke. The wind had gone into the north, and the men were looking at him in a way that he did not like.",
    "There was no sound in {place} but the ticking of the clock. {name} listened for a long while, and then, very softly, began to climb the stairs.",
    "Of all the people who came to {place} that winter, none was talked about so much as Miss {surname}, who had arrived alone, with one trunk and {thing}.",
    "The two boys had been told to keep away from {place}, and so, of course, it was there that they went as soon as their lessons were over. {name} carried {thing} under his coat.",
]
TALES = [
    "Once upon a time there lived near {place} a poor widow who had three sons, and the youngest of them was called {name}. One day she gave him {thing} and said,",
    "Long ago, when beasts could still speak, {beast} met a miller's daughter at the edge of the wood. \"Where are you going?\" it asked.",
    "There was once a king who could not sleep. He sent his servants to every corner of the land, and the last of them came back with {thing} and {beast}.",
    "{name} was the smallest child in the village, but she was never afraid. When {beast} came down from the hills, she went out to meet it.",
    "In a village by a wide river lived a girl named {name}. Every morning she carried water for her grandmother, and every morning {beast} followed her home.",
    "An old woman had {beast} that laid golden eggs, or so the neighbours said. One night {name} hid behind the door to see whether it was true.",
]
DIALOGUE = [
    "User: Hi, could I get {drink} please?\nAssistant:",
    "User: Good morning, I want to order {drink} for {name}.\nAssistant: Sure. Would you like anything else with that?\nUser: No, that is all.\nAssistant:",
    "User: I'd like {drink} with oat milk\nAssistant: What size would you like?\nUser: Medium\nAssistant:",
    "User: Can I have {drink} and a blueberry muffin?\nAssistant: Is the order on the screen correct?\nUser:",
    "User: Hello, {drink} to go please.\nAssistant: Okay, is the order displayed correct?\nUser: No, make it decaf\nAssistant:",
]
MATHS = [
    "Question: {name} has {a} {food}. {name2} gives {name} {b} more, and then {name} shares them equally among {c} friends. How many {food} does each friend get?\nAnswer:",
    "Question: A shop sells {food} at ${c} each. On Monday it sells {a} of them and on Tuesday twice as many. How much money does it take in both days together?\nAnswer:",
    "Question: {name} walks {c} miles to school and back every day. How many miles does {name} walk in {b} days?\nAnswer:",
    "Question: There are {a} {food} in a box. {name} takes half of them, and {name2} takes {b} of the rest. How many {food} are left?\nAnswer:",
    "Question: {name} saves ${b} a week. How many weeks will it take {name} to save ${a}0?\nAnswer:",
]
KINDS = {"books": BOOKS, "tales": TALES, "dialogue": DIALOGUE, "maths": MATHS}


def main() -> None:
    rng = random.Random(20260101)
    lines = []
    for kind, templates in KINDS.items():
        seen = set()
        i = 0
        while len(seen) < 25:
            name, name2 = rng.sample(NAMES, 2)
            b = rng.choice([4, 6, 8, 10])
            text = templates[i % len(templates)].format(
                name=name, name2=name2, surname=rng.choice(SURNAMES), place=rng.choice(PLACES),
                thing=rng.choice(THINGS), beast=rng.choice(BEASTS), drink=rng.choice(DRINKS),
                food=rng.choice(FOODS), a=rng.choice([24, 36, 48, 60]), b=b, c=rng.choice([2, 3, 4]))
            i += 1
            if text not in seen:
                seen.add(text)
                lines.append({"kind": kind, "prompt": text})
    out = pathlib.Path(__file__).with_name("prompts.jsonl")
    out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
