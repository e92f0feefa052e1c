"""Exercises of chapter 16: latent codes, the evidence lower bound, and diffusion."""

from __future__ import annotations

import numpy as np

from .exercises import Answer, Exercises, format_numbers, pair, same

EXERCISES = exercise = Exercises()


@exercise(
    "kl(mu, log_var)",
    "KL(N(mu, exp(log_var)) ‖ N(0, 1)), summed over the numbers of a code, in nats.",
    level="easy",
)
def kl(answer: Answer) -> None:
    """Check the closed form."""
    for mu, log_var in (
        (np.array([0.0, 0.0]), np.array([0.0, 0.0])),
        (np.array([1.0, -2.0]), np.array([0.0, 0.5])),
        (np.array([0.5]), np.array([-3.0])),
    ):
        terms = mu**2 + np.exp(log_var) - 1 - log_var
        wrong = (
            (terms.sum(), "A factor of ½ is missing."),
            (-terms.sum() / 2, "A divergence is never negative: the sign is the other."),
            (terms.mean() / 2, "Sum over the numbers of the code: they are independent, so that divergences add."),
            (terms / 2, "The result is one number: sum over the numbers of the code."),
            ((mu**2 + log_var**2 - 1 - np.log(log_var**2 + 1e-300)).sum() / 2, "log_var is ln σ²: take exp of it."),
            ((mu**2 + np.exp(2 * log_var) - 1 - 2 * log_var).sum() / 2, "log_var is ln σ² already, not ln σ."),
        )
        same(
            answer(mu.copy(), log_var.copy()),
            terms.sum() / 2,
            f"For mu = {format_numbers(mu)}, log_var = {format_numbers(log_var)}",
            wrong,
        )


@exercise(
    "alphas_bar(betas)",
    "ᾱ_t of each step t = 1 … T, from the variances betas (T,) of the noise: (T,). ᾱ_t is the product of all 1 - β "
    "up to and including step t.",
    level="easy",
)
def alphas_bar(answer: Answer) -> None:
    """Check the cumulative product."""
    for betas in (np.array([0.1, 0.2, 0.5]), np.array([0.02, 0.0, 0.3, 0.999])):
        right = np.cumprod(1 - betas)
        wrong = (
            (1 - betas, "That is α_t of each step alone: multiply all up to t."),
            (np.cumprod(betas), "That multiplies the variances of the noise: what stays is 1 - β."),
            (1 - np.cumsum(betas), "What stays is multiplied at each step, not subtracted."),
            (np.sqrt(right), "That is the factor of the image, the root: ᾱ is a fraction of the variance."),
            (1 - right, "That is the variance of the noise: ᾱ is the image's part."),
            (np.r_[1.0, right[:-1]], "Step t counts: ᾱ_1 is 1 - β_1, not 1."),
        )
        same(answer(betas.copy()), right, f"For betas = {format_numbers(betas)}", wrong)


@exercise(
    "denoised(xt, noise, signal)",
    "x_0, from x_t = √signal · x_0 + √(1 - signal) · noise, arrays of one shape; `signal` is ᾱ_t.",
    level="easy",
)
def denoised(answer: Answer) -> None:
    """Check the solution of the equation."""
    xt, noise = np.array([0.5, -1.0, 2.0]), np.array([1.0, 0.25, -0.5])
    for signal in (0.64, 0.1):
        right = (xt - np.sqrt(1 - signal) * noise) / np.sqrt(signal)
        wrong = (
            (np.sqrt(signal) * xt + np.sqrt(1 - signal) * noise, "That adds noise once more: solve for x_0."),
            (xt - np.sqrt(1 - signal) * noise, "Divide by √signal: the image was made fainter, too."),
            (xt - noise, "The noise stands with √(1 - signal), and the image with √signal."),
            ((xt - (1 - signal) * noise) / signal, "Both factors are roots: it is the variances that sum to 1."),
            (
                (xt - np.sqrt(signal) * noise) / np.sqrt(1 - signal),
                "√signal is the image's, √(1 - signal) the noise's.",
            ),
        )
        same(answer(xt.copy(), noise.copy(), signal), right, f"For signal = {signal}", wrong)


@exercise(
    "elbo(x, w, b, s, mu, sigma)",
    "The ELBO in nats, one number, of an example x (D,) under p(z) = N(0, 1), p(x|z) = N(w z + b, s² I), with "
    "q(z|x) = N(mu, sigma²): w (D,), b (D,), the others are numbers. Exact, without sampling: E(x - w z - b)² = (x "
    "- w mu - b)² + w² sigma² in each entry. Constants such as ln 2π count.",
    level="medium",
)
def elbo(answer: Answer) -> None:
    """Check both terms, with the variance of the code in the reconstruction."""
    x, w, b = np.array([1.0, -0.5, 2.0]), np.array([0.5, 1.0, -1.0]), np.array([0.0, 0.25, 1.0])
    for s, mu, sigma in ((0.5, 0.3, 0.8), (1.0, -1.0, 0.5), (2.0, 0.0, 1.0)):
        at_mean = ((x - w * mu - b) ** 2).sum()
        squares = at_mean + sigma**2 * (w**2).sum()
        constant = -len(x) / 2 * np.log(2 * np.pi * s**2)
        cost = 0.5 * (mu**2 + sigma**2 - 1 - np.log(sigma**2))
        right = constant - squares / (2 * s**2) - cost
        wrong = (
            (-right, "That is -ELBO, the loss."),
            (constant - at_mean / (2 * s**2) - cost, "z is random: add w² sigma² to each expected square."),
            (constant - squares / (2 * s**2) + cost, "The cost of the code is subtracted."),
            (constant - squares / (2 * s**2), "The cost of the code, KL(q ‖ p(z)), is missing."),
            (-squares / (2 * s**2) - cost, "The constant of the normal density, -D/2 ln(2π s²), is missing."),
            (constant - squares / (2 * s**2) - 2 * cost, "A factor of ½ is missing in the divergence."),
        )
        same(
            answer(x.copy(), w.copy(), b.copy(), s, mu, sigma), right, f"For s = {s}, mu = {mu}, sigma = {sigma}", wrong
        )


@exercise(
    "step_posterior(x0, xt, now, before)",
    "(mean, variance) of q(x_{t-1} | x_t, x_0), for arrays x0 and xt of one shape; `now` is ᾱ_t and `before` is "
    "ᾱ_{t-1}, so that α_t = now / before and β_t = 1 - α_t. The mean has the shape of x0, the variance is one "
    "number.",
    level="medium",
)
def step_posterior(answer: Answer) -> None:
    """Check the two weights of the mean, and the variance."""
    x0, xt = np.array([1.0, -0.5, 0.25]), np.array([0.5, 0.75, -1.0])
    for now, before in ((0.5, 0.8), (0.1, 0.3)):
        alpha = now / before
        beta = 1 - alpha
        when = f"For now = {now}, before = {before}"
        mean, variance = pair(answer(x0.copy(), xt.copy(), now, before), ("mean", "variance"), when)
        right = (np.sqrt(alpha) * (1 - before) * xt + np.sqrt(before) * beta * x0) / (1 - now)
        wrong = (
            ((alpha * (1 - before) * xt + before * beta * x0) / (1 - now), "√α_t and √ᾱ_{t-1}: take the roots."),
            (
                (np.sqrt(alpha) * (1 - before) * x0 + np.sqrt(before) * beta * xt) / (1 - now),
                "√α_t (1 - ᾱ_{t-1}) is the factor of x_t, √ᾱ_{t-1} β_t that of x_0.",
            ),
            (right * (1 - now), "Divide by 1 - ᾱ_t."),
            (np.sqrt(before) * x0, "That is the mean of q(x_{t-1} | x_0): x_t is known, too."),
        )
        same(mean, right, f"{when}, the mean:", wrong)
        hint = "The variance is (1 - ᾱ_{t-1}) / (1 - ᾱ_t) · β_t."
        value = (1 - before) / (1 - now) * beta
        same(variance, value, f"{when}, the variance:", ((beta, hint), (1 - before, hint), (np.sqrt(value), hint)))


@exercise(
    "noise_weights(betas)",
    "w_t = β_t / (2 α_t (1 - ᾱ_{t-1})) for t = 2 … T, from betas (T,): (T - 1,). With these weights of ‖ε - ε_θ‖² "
    "the loss is the bound. t = 1 is left out, since 1 - ᾱ_0 = 0.",
    level="medium",
)
def noise_weights(answer: Answer) -> None:
    """Check which step each factor belongs to."""
    for betas in (np.array([0.1, 0.2, 0.5]), np.array([0.02, 0.1, 0.3, 0.6])):
        alphas = 1 - betas
        bars = np.cumprod(alphas)
        right = betas[1:] / (2 * alphas[1:] * (1 - bars[:-1]))
        wrong = (
            (betas[1:] / (2 * alphas[1:] * (1 - bars[1:])), "1 - ᾱ of the step *before*: ᾱ_{t-1}."),
            (2 * right, "A factor of ½ is missing."),
            (betas[1:] / (2 * (1 - bars[:-1])), "Divide by α_t, too."),
            (betas[1:] / (2 * bars[1:] * (1 - bars[:-1])), "α_t is that of one step, 1 - β_t: not ᾱ_t."),
            (betas[1:] ** 2 / (2 * alphas[1:] * (1 - bars[:-1])), "β_t, not its square: β̃_t has cancelled one."),
        )
        same(answer(betas.copy()), right, f"For betas = {format_numbers(betas)}", wrong)
