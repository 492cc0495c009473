"""Curator's recipes, through a Java program that is compiled on the fly."""

import subprocess

from server import HERE, classpath


def test_the_curator_recipes_keep_their_promises(server):
    result = subprocess.run(["java", "-cp", classpath("curator"), HERE / "java" / "Recipes.java", server.address],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout[-5000:]
