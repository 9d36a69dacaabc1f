"""Train a small Hugging Face model for a step with Liger's kernels. Prints the loss and a digest of each gradient.

    pip install transformers liger-kernel
    python examples/record_serve/liger.py

Nothing here knows nojit. Without a GPU, run it under ``nojit record --fake sm_90`` with ``--no-digest``: there are no results then.
"""

import argparse
import hashlib
import sys

try:
    import torch
    from liger_kernel.transformers import apply_liger_kernel_to_llama
    from transformers import LlamaConfig, LlamaForCausalLM
except ModuleNotFoundError as error:
    sys.exit(f"error: expected {error.name} to be installed: pip install torch triton liger-kernel transformers")

BATCH, TOKENS = 2, 512


def main() -> None:
    """Run a step on random tokens and print a digest of each gradient."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-digest", action="store_true", help="print no digest: results are not read")
    given = parser.parse_args()
    # before the model is made: rms_norm, rope, swiglu and the fused linear cross entropy become Liger's
    apply_liger_kernel_to_llama()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32_000,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=2,
        num_attention_heads=16,
        num_key_value_heads=4,
    )
    model = LlamaForCausalLM(config).to("cuda", torch.bfloat16)
    # from the CPU, as a data loader's: Liger asks how many of the labels count
    tokens = torch.randint(config.vocab_size, (BATCH, TOKENS)).to("cuda")
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    if given.no_digest:
        print("ran")
        return
    print(f"loss {loss.item():.6f}")
    for name, weight in model.named_parameters():
        if weight.grad is not None:
            print(name, hashlib.sha256(weight.grad.float().cpu().numpy().tobytes()).hexdigest())


if __name__ == "__main__":
    main()
