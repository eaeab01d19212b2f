# SPDX-License-Identifier: MIT OR Apache-2.0
"""The clients and sandboxes for asyncio."""

import asyncio
import unittest
from typing import List

from support import server  # first: it finds the package

import pando


class Async(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.client = pando.AsyncClient(server().socket, start=False)

    async def asyncTearDown(self) -> None:
        await self.client.close()

    async def running(self) -> List[int]:
        return [cell.id for cell in await self.client.cells() if cell.outcome is None]

    async def test_twenty_at_once(self) -> None:
        results = await asyncio.gather(*(self.client.run(f"print({n})", timeout=120) for n in range(20)))
        self.assertEqual([result.stdout for result in results], [f"{n}\n" for n in range(20)])
        self.assertEqual({(result.exit_code, result.error) for result in results}, {(0, None)})

    async def test_twenty_sandboxes_at_once(self) -> None:
        async def count(number: int) -> str:
            async with pando.AsyncSandbox(client=self.client, timeout=120) as s:
                await s.run(f"x = {number}")
                await s.run("x += 1")
                return (await s.run("print(x)")).stdout

        self.assertEqual(await asyncio.gather(*map(count, range(20))), [f"{n + 1}\n" for n in range(20)])
        self.assertEqual(await self.running(), [])

    async def test_a_sandbox(self) -> None:
        heard: List[str] = []
        async with pando.AsyncSandbox(client=self.client, memory="128M", timeout=60) as s:
            self.assertEqual((await s.run("print('é', end='')", on_stdout=heard.append)).stdout, "é")
            failed = await s.run("1 / 0")
            assert failed.error is not None
            self.assertEqual(failed.error.name, "ZeroDivisionError")
            late = await s.run("while True: pass", timeout=0.3)
            assert late.error is not None
            self.assertEqual((late.reason, late.error.name), ("timed-out", "KeyboardInterrupt"))
            self.assertEqual((await s.run_code("6 * 7")).text, "42")
        self.assertEqual(heard, ["é"])

    async def test_cancelling_a_run_ends_its_cell(self) -> None:
        begun = asyncio.Event()
        async with pando.AsyncSandbox(client=self.client) as s:
            task = asyncio.ensure_future(
                s.run("print(1, flush=True)\nwhile True: pass", on_stdout=lambda _: begun.set())
            )
            await begun.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(await self.running(), [])
            with self.assertRaisesRegex(pando.SandboxEnded, "interrupted"):
                await s.run("print(1)")

    async def test_programs_and_files(self) -> None:
        async with pando.AsyncSandbox(client=self.client, timeout=60) as s:
            await s.write_file("/tmp/x", "é")
            self.assertEqual((await s.exec(["cat", "/tmp/x"])).stdout, "é")
            self.assertEqual(await s.read_file("/tmp/x"), "é".encode())
            begun = asyncio.Event()
            job = asyncio.ensure_future(s.exec(["sh", "-c", "echo; sleep 1000"], on_stdout=lambda _: begun.set()))
            await begun.wait()
            job.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await job
            self.assertEqual((await s.run("print(1)")).stdout, "1\n")

    async def test_cells_and_templates(self) -> None:
        async with await self.client.start("python", ["print(input())"]) as cell:
            await cell.write("hello\n", end=True)
            self.assertEqual("".join([piece.text async for piece in cell.output()]), "hello\n")
            outcome = await cell.wait()
            assert outcome is not None
            self.assertEqual(outcome.reason, "exited")
        self.assertIn("python", [template.name for template in await self.client.templates()])
        with self.assertRaises(pando.NoSuchTemplate):
            await self.client.template("none")
        with self.assertRaises(pando.NoSuchTemplate):
            await pando.AsyncSandbox("none", client=self.client).start()
        self.assertGreater((await self.client.info()).free_bytes, 0)


if __name__ == "__main__":
    unittest.main()
