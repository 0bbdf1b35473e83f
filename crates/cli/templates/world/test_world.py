"""Tests of the world itself, without a trainer: python3 -m unittest discover NAME"""

import unittest

from world import TASKS, World, expert


class WorldTest(unittest.TestCase):
    def begin(self, task):
        world = World()
        return world, world.reset(seed=0, options={"task": task})

    def test_the_expert_solves_every_task(self):
        for task in TASKS["train"] + TASKS["test"]:
            world, seen = self.begin(task)
            for _ in range(5):
                seen, reward, terminated, _, info = world.step(expert(world, seen, {}))
                if terminated:
                    break
            self.assertTrue(terminated and reward == 1.0 and info["success"], task)

    def test_a_bad_action_is_answered(self):
        world, seen = self.begin(TASKS["test"][0])
        for action in ["words", {"name": "other", "arguments": {}}, {"name": "guess", "arguments": {"n": "x"}}]:
            again, reward, terminated, _, info = world.step(action)
            self.assertEqual((again, reward, terminated, info["understood"]), (seen, 0.0, False, False))

    def test_no_task_is_in_both_splits(self):
        ids = [task["id"] for split in TASKS.values() for task in split]
        self.assertEqual(len(ids), len(set(ids)))


if __name__ == "__main__":
    unittest.main()
