#!/usr/bin/env python3
"""Whether a folder that bench/widen wrote computes what its source does, in transformers.

    check_widened.py SOURCE WIDENED

Loads both in float32 on the CPU, runs the same texts through both and prints the largest
difference of their logits and whether they agree on the likeliest next tokens. Ends with 1 if a
difference is above the tolerance. Needs torch, transformers and sentencepiece, and memory for
twice the folder's size. --random-tokens for models without a tokenizer.model. In Gemma 3's shapes
the norms' epsilon may be off by a factor of 2 (scales_of in widening.h): --tolerance 2e-3.
"""

import argparse
import os
import sys

import torch
from transformers import AutoModelForCausalLM

TEXTS = [
    "Once upon a time there was a miller who had three sons",
    "The captain looked at the",
    "\"I do not know where to go,\" she said, and he answered,",
    "What is 12 plus 30?",
]


def tokens_of(source, config, random_tokens):
    if random_tokens:
        generator = torch.Generator().manual_seed(1)
        return [torch.randint(0, config.vocab_size, (40,), generator=generator).tolist()
                for _ in TEXTS]
    import sentencepiece
    pieces = sentencepiece.SentencePieceProcessor(
        model_file=os.path.join(source, "tokenizer.model"))
    bos = [] if config.bos_token_id is None else [config.bos_token_id]
    return [bos + pieces.encode(text) for text in TEXTS]


def load(folder):
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                       output_loading_info=True)
    for what, names in info.items():
        if names:
            sys.exit(f"{folder}: {what}: {sorted(map(str, names))[:5]}")
    return model.eval()


def logits_of(model, sequences):
    with torch.no_grad():
        return [model(torch.tensor([tokens])).logits[0] for tokens in sequences]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("widened")
    # Two float32 passes differ by some roundings of 2^-24, magnified by the layers between; a
    # wrong copy changes logits by their own size.
    parser.add_argument("--tolerance", type=float, default=2e-5,
                        help="of the largest logit's size (default %(default)g)")
    parser.add_argument("--random-tokens", action="store_true")
    arguments = parser.parse_args()

    small = load(arguments.source)
    sequences = tokens_of(arguments.source, small.config, arguments.random_tokens)
    wanted = logits_of(small, sequences)
    del small
    model = load(arguments.widened)
    print(f"{arguments.widened}: {sum(p.numel() for p in model.parameters()) / 1e6:.1f}M "
          f"parameters, {getattr(model.config, 'coppice_widened', None)}")
    worst, all_agree = 0.0, True
    for tokens, source, widened in zip(sequences, wanted, logits_of(model, sequences)):
        size = source.abs().max().item()
        difference = (widened - source).abs().max().item()
        agree = torch.equal(source.argmax(-1), widened.argmax(-1))
        print(f"{len(tokens)} tokens: largest difference {difference:.3g}, largest logit "
              f"{size:.4g}, likeliest tokens {'agree' if agree else 'DIFFER'}")
        # Not max(): a NaN must not be lost.
        if not difference / size <= worst:
            worst = difference / size
        all_agree = all_agree and agree
    good = worst <= arguments.tolerance
    print(f"largest relative difference {worst:.3g} "
          f"({'within' if good else 'ABOVE'} the tolerance of {arguments.tolerance:g}), "
          f"likeliest tokens {'agree' if all_agree else 'differ'} everywhere")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
