#!/usr/bin/env python3
"""Short stories in simple English from a seeded grammar: the text the tiny model is trained on.

  corpus.py [--stories N] [--seed S]     writes the stories to standard output, one per line

Every story keeps its hero, friend, pronoun, place and treasure from the first sentence to the last, so a model has to
look back to continue it. Same seed and count, same bytes; standard library only.
"""
import argparse
import random
import sys

NAMES = [("Anna", "she", "her"), ("Ben", "he", "his"), ("Clara", "she", "her"), ("Daniel", "he", "his"),
         ("Emma", "she", "her"), ("Felix", "he", "his"), ("Greta", "she", "her"), ("Henry", "he", "his"),
         ("Ida", "she", "her"), ("Jack", "he", "his"), ("Lily", "she", "her"), ("Max", "he", "his"),
         ("Nora", "she", "her"), ("Oscar", "he", "his"), ("Rosa", "she", "her"), ("Tom", "he", "his")]
ANIMALS = ["cat", "dog", "fox", "bear", "rabbit", "mouse", "bird", "frog", "horse", "duck"]
TRAITS = ["little", "brave", "kind", "clever", "shy", "funny", "quiet", "happy"]
PLACES = ["a small house by the river", "a tall tree in the forest", "a red barn on the hill",
          "a warm cave near the sea", "a garden full of flowers", "a quiet village in the valley"]
THINGS = ["ball", "key", "shell", "hat", "boat", "bell", "kite", "lamp", "stone", "book"]
LOOKS = ["red", "blue", "golden", "tiny", "shiny", "old", "green", "round"]
SPOTS = ["under a bush", "behind the house", "near the bridge", "in the tall grass", "beside the road", "on the beach"]
WEATHER = ["The sun was shining", "It was raining", "The wind was blowing", "Snow was falling", "The sky was clear"]
WALKS = ["went for a walk", "ran to the river", "looked out of the window", "woke up very early", "wanted to play"]
TROUBLES = [("was too heavy to carry", "carried the {thing} home together"),
            ("fell into the water", "pulled the {thing} out with a long stick"),
            ("was stuck in the mud", "washed the {thing} until it was clean"),
            ("broke into two pieces", "mended the {thing} with a bit of string"),
            ("rolled down the hill", "ran after the {thing} and caught it")]
FEELINGS = ["was sad", "was worried", "began to cry", "did not know what to do"]
ENDINGS = ["They were happy and laughed all day.", "They played until the sun went down.",
           "They shared some bread and went to sleep.", "From that day on they were best friends."]


def story(rng):
    (hero, he, his), (friend, _, _) = rng.sample(NAMES, 2)
    hero_kind, friend_kind = rng.sample(ANIMALS, 2)
    thing, look = rng.choice(THINGS), rng.choice(LOOKS)
    trouble, rescue = rng.choice(TROUBLES)
    article = "an" if look[0] in "aeiou" else "a"
    start = rng.choice(["Once upon a time there was a", "Long ago there was a", "There once was a"])
    sentences = [
        f"{start} {rng.choice(TRAITS)} {hero_kind} named {hero}.",
        f"{hero} lived in {rng.choice(PLACES)}.",
        f"One day {hero} {rng.choice(WALKS)}. {rng.choice(WEATHER)}.",
        f"{he.capitalize()} found {article} {look} {thing} {rng.choice(SPOTS)}.",
        rng.choice([f'"What a nice {thing}!" said {hero}.', f'"I will keep this {thing}," said {hero}.']),
        f"But the {thing} {trouble}, and {hero} {rng.choice(FEELINGS)}.",
        f"Then {his} friend {friend} the {friend_kind} came along.",
        rng.choice([f'"Can you help me?" asked {hero}.', f'"Please help me," said {hero}.']),
        rng.choice([f'"Of course I can," said {friend}.', f'"Yes, let us try," said {friend}.']),
        f"{hero} and {friend} {rescue.format(thing=thing)}.",
        f'"Thank you, {friend}!" said {hero}.',
        rng.choice(ENDINGS),
    ]
    if rng.random() < 0.5:
        del sentences[4]
    if rng.random() < 0.3:
        del sentences[1]
    return " ".join(sentences)


def stories(count, seed):
    rng = random.Random(seed)
    return [story(rng) for _ in range(count)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stories", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.stdout.write("\n".join(stories(options.stories, options.seed)) + "\n")
