"""A task for inspect-ai, to evaluate a policy that `turnwise serve` serves. See docs/serve.md."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

FACTS = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Germany": "Berlin",
    "Japan": "Tokyo",
    "China": "Beijing",
    "Russia": "Moscow",
    "Egypt": "Cairo",
    "Greece": "Athens",
    "Portugal": "Lisbon",
    "Austria": "Vienna",
    "Poland": "Warsaw",
    "Norway": "Oslo",
    "Sweden": "Stockholm",
    "Finland": "Helsinki",
    "Ireland": "Dublin",
    "Cuba": "Havana",
    "Peru": "Lima",
    "Kenya": "Nairobi",
    "India": "New Delhi",
}


@task
def capitals():
    question = "What is the capital of {}? Answer in one short sentence."
    samples = [Sample(input=question.format(country), target=city) for country, city in FACTS.items()]
    return Task(dataset=samples, solver=generate(), scorer=includes())
