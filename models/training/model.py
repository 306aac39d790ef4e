"""A plain Llama decoder with Hugging Face's weight layout, the optimiser for
its matrices, and batched sampling from it."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


class Shape:
    def __init__(self, hidden, layers, heads, kv_heads, ffn, vocab=4096,
                 head_dim=128, theta=10000.0, eps=1e-5, positions=512):
        self.hidden, self.layers, self.heads = hidden, layers, heads
        self.kv_heads, self.ffn, self.vocab = kv_heads, ffn, vocab
        self.head_dim, self.theta, self.eps = head_dim, theta, eps
        self.positions = positions

    def config(self):
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "initializer_range": 0.02,
            "intermediate_size": self.ffn,
            "max_position_embeddings": self.positions,
            "mlp_bias": False,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": self.eps,
            "rope_scaling": None,
            "rope_theta": self.theta,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "use_cache": True,
            "vocab_size": self.vocab,
        }


TARGET = Shape(hidden=512, layers=5, heads=4, kv_heads=2, ffn=1376)
DRAFT = Shape(hidden=256, layers=2, heads=2, kv_heads=1, ffn=688)


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return y.to(x.dtype) * self.weight.to(x.dtype)


def rotate(x, cos, sin):
    # Halves are paired, not neighbours: Hugging Face's convention.
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.q_proj = nn.Linear(s.hidden, s.heads * s.head_dim, bias=False)
        self.k_proj = nn.Linear(s.hidden, s.kv_heads * s.head_dim, bias=False)
        self.v_proj = nn.Linear(s.hidden, s.kv_heads * s.head_dim, bias=False)
        self.o_proj = nn.Linear(s.heads * s.head_dim, s.hidden, bias=False)

    def forward(self, x, cos, sin, cache=None, at=0):
        s, (rows, n, _) = self.s, x.shape
        q = self.q_proj(x).view(rows, n, s.heads, s.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(rows, n, s.kv_heads, s.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(rows, n, s.kv_heads, s.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if cache is not None:
            cache[0][:, :, at:at + n] = k
            cache[1][:, :, at:at + n] = v
        if cache is not None and n == 1:
            # The heads that share a key head stand as rows of one query.
            q = q.reshape(rows, s.kv_heads, s.heads // s.kv_heads, s.head_dim)
            y = F.scaled_dot_product_attention(
                q, cache[0][:, :, :at + 1], cache[1][:, :, :at + 1])
            y = y.reshape(rows, 1, -1)
        else:
            assert at == 0
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                               enable_gqa=True)
            y = y.transpose(1, 2).reshape(rows, n, -1)
        return self.o_proj(y)


class FeedForward(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate_proj = nn.Linear(s.hidden, s.ffn, bias=False)
        self.up_proj = nn.Linear(s.hidden, s.ffn, bias=False)
        self.down_proj = nn.Linear(s.ffn, s.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.input_layernorm = RMSNorm(s.hidden, s.eps)
        self.self_attn = Attention(s)
        self.post_attention_layernorm = RMSNorm(s.hidden, s.eps)
        self.mlp = FeedForward(s)

    def forward(self, x, cos, sin, cache=None, at=0):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, cache, at)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.embed_tokens = nn.Embedding(s.vocab, s.hidden)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.norm = RMSNorm(s.hidden, s.eps)
        steps = torch.arange(0, s.head_dim, 2).float() / s.head_dim
        angles = torch.outer(torch.arange(s.positions + 1).float(),
                             1.0 / s.theta ** steps)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                late = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * s.layers) if late else 0.02)

    def forward(self, ids, caches=None, at=0, last_only=False, dtype=None):
        x = self.embed_tokens(ids)
        if dtype is not None:  # autocast leaves the residual stream as it is
            x = x.to(dtype)
        n = ids.shape[1]
        cos, sin = self.cos[at:at + n], self.sin[at:at + n]
        for i, layer in enumerate(self.layers):
            x = layer(x, cos, sin, caches[i] if caches else None, at)
        x = self.norm(x[:, -1:] if last_only else x)
        return F.linear(x, self.embed_tokens.weight)

    def hf_state(self, dtype):
        return {"model." + name: p.detach().to(dtype).contiguous().cpu()
                for name, p in self.named_parameters()}

    @classmethod
    def rounded(cls, other, dtype):
        """A copy whose weights are `other`'s rounded to BF16, held in
        `dtype`: what a user of the exported files will run."""
        twin = cls(other.s).to(next(other.parameters()).device)
        with torch.no_grad():
            for a, b in zip(twin.parameters(), other.parameters()):
                a.copy_(b.to(torch.bfloat16))
        twin.requires_grad_(False)
        for p in twin.parameters():
            p.data = p.data.to(dtype)
        return twin.eval()


# cuDNN would plan anew for every length of the cache.
DECODE_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION,
                   SDPBackend.MATH]


@torch.no_grad()
@sdpa_kernel(DECODE_BACKENDS)
def sample(model, prompt, length, temperature):
    """Continue each row of `prompt` ([rows, n] ids) to `length` ids in all.
    `temperature` holds one value per row, 0 for greedy. Text after an EOS is
    the caller's to cut."""
    s, rows = model.s, prompt.shape[0]
    like = model.norm.weight
    caches = [tuple(torch.zeros(rows, s.kv_heads, length, s.head_dim,
                                device=like.device, dtype=like.dtype)
                    for _ in range(2)) for _ in range(s.layers)]
    out = torch.zeros(rows, length, dtype=torch.long, device=like.device)
    at = prompt.shape[1]
    out[:, :at] = prompt
    temperature = temperature.to(like.device).float()[:, None]
    drawn = (temperature > 0).float()
    scale = 1.0 / torch.where(temperature > 0, temperature, torch.ones_like(temperature))
    feed, place = prompt, 0
    while at < length:
        logits = model(feed, caches, place, last_only=True)[:, 0].float() * scale
        # Adding Gumbel noise and taking the largest draws from the softmax.
        noise = torch.empty_like(logits).exponential_().log_()
        nxt = torch.addcmul(logits, noise, drawn, value=-1.0).argmax(-1)
        out[:, at] = nxt
        feed, place = nxt[:, None], at
        at += 1
    return out


def _orthogonal(g):
    """Each matrix of the stack moved towards the nearest matrix with equal
    singular values, by a quintic iteration that needs products only."""
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * (gram @ gram)) @ x
    return x.mT if tall else x


class MatrixMomentum:
    """Muon: momentum whose update is orthogonalised, for the matrices inside
    the layers. The update is scaled to the size that AdamW's would have;
    orthogonal updates bear, and at first need, a higher rate than AdamW."""

    def __init__(self, params, decay, momentum=0.95, boost=2.0):
        self.decay, self.momentum, self.boost = decay, momentum, boost
        groups = {}
        for p in params:
            groups.setdefault(tuple(p.shape), []).append(p)
        self.groups = [(ps, torch.zeros(len(ps), *shape, device=ps[0].device))
                       for shape, ps in groups.items()]

    @torch.no_grad()
    def step(self, rate):
        rate = rate * self.boost
        for params, average in self.groups:
            grads = torch.stack([p.grad for p in params])
            average.lerp_(grads, 1 - self.momentum)
            update = _orthogonal(grads.lerp(average, self.momentum)).float()
            size = 0.2 * math.sqrt(max(params[0].shape))
            torch._foreach_mul_(params, 1 - rate * self.decay)
            torch._foreach_add_(params, list(update.unbind()), alpha=-rate * size)


class Optimiser:
    """`decay` is for the layers' matrices; embeddings keep to AdamW's usual
    figure."""

    def __init__(self, model, kind, decay):
        matrices = [p for n, p in model.named_parameters()
                    if p.ndim == 2 and "embed" not in n]
        vectors = [p for p in model.parameters() if p.ndim == 1]
        rest = [model.embed_tokens.weight]
        self.muon = MatrixMomentum(matrices, decay) if kind == "muon" else None
        if kind == "adamw":
            rest += matrices
        self.adam = torch.optim.AdamW(
            [{"params": rest, "weight_decay": 0.1},
             {"params": vectors, "weight_decay": 0.0}],
            betas=(0.9, 0.95), eps=1e-8, fused=rest[0].is_cuda)
        self.params = list(model.parameters())

    def step(self, rate):
        torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()
        if self.muon:
            self.muon.step(rate)
        for p in self.params:
            p.grad = None
