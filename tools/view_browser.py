"""Checks the viewer's pages in headless Chromium: nothing overflows, text of a trajectory never runs, keys and live pages work.

    python3 tools/view_browser.py TURNWISE [--screenshots FOLDER] [--run RUN]

TURNWISE is the program. The pages show a synthetic run with hostile texts. With `--run`, they show a real run or folder of runs, and keys and
live pages are not checked. Prints `skipped: REASON` without Chromium. Needs only Python 3.10.
"""

import argparse
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import synthetic_run

BROWSERS = ["chromium", "chromium-browser", "google-chrome", "chrome"]
WIDTHS = {"wide": 1280, "narrow": 400}


class Browser:
    """Chromium, controlled through a pipe by the DevTools protocol."""

    def __init__(self, path: str, folder: str):
        to_read, self.to_write = os.pipe()
        self.from_read, from_write = os.pipe()

        def pipes():
            # The protocol's descriptors are 3 and 4; duplicates first, since these may be among them.
            reader, writer = os.dup(to_read), os.dup(from_write)
            os.dup2(reader, 3)
            os.dup2(writer, 4)

        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        self.process = subprocess.Popen(
            [path, *options, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=pipes,
            close_fds=False,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        self.rest, self.number, self.events, self.session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")

    def message(self) -> dict:
        while b"\0" not in self.rest:
            part = os.read(self.from_read, 1 << 16)
            if not part:
                raise SystemExit("the browser has ended")
            self.rest += part
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)

    def call(self, method: str, **params) -> dict:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, code: str):
        found = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise SystemExit(f"{code}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, code: str, what: str) -> None:
        end = time.time() + 30
        while time.time() < end:
            if self.evaluate(code):
                return
            time.sleep(0.1)
        raise SystemExit(f"not within 30 s: {what}")

    def size(self, width: int, dark: bool) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        self.wait(f"location.href != 'about:blank' && document.readyState == 'complete'", url)

    def key(self, key: str) -> None:
        # Keys work once the script has run.
        self.wait("document.readyState == 'complete'", "the page is loaded")
        text = "\r" if key == "Enter" else key
        code = 13 if key == "Enter" else 0
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path) -> None:
        height = min(self.evaluate("document.documentElement.scrollHeight"), 2600)
        width = self.evaluate("innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        found = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def problems(self, address: str) -> list[str]:
        """Returns errors of the console and requests to other addresses since the last call."""
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"].get("exception", params)))
            if method == "Log.entryAdded" and params["entry"]["level"] == "error":
                # A browser asks for an icon that pages do not have.
                if "favicon" not in params["entry"].get("url", ""):
                    found.append(params["entry"]["text"])
            if method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith((address, "data:", "about:")):
                    found.append(f"a request to {url}")
        self.events = []
        return found

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def serve(program: str, path: Path, options: list[str]) -> tuple[subprocess.Popen, str]:
    command = [program, "view", str(path), "--address", "127.0.0.1:0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    return process, re.search(r"http://[\d.:]+", line)[0]


def pages(address: str, base: str, step: int) -> dict[str, str]:
    run = address + base
    found = {
        "run": run or address,
        "step": f"{run}/step/{step}",
        "group": f"{run}/step/{step}/first",
        "clipping": f"{run}/step/{step}/first?color=clipping",
        "search": f"{run}/search?q=the",
    }
    return {"list": address} | found if base else found


def look(browser: Browser, address: str, found: dict[str, str], folder: Path | None) -> None:
    """Opens each page in each size and colour scheme, and checks layout, scripts and requests."""
    for scheme in ["light", "dark"]:
        for size, width in WIDTHS.items():
            browser.size(width, scheme == "dark")
            for name, url in found.items():
                browser.open(url)
                if name in ("group", "clipping"):
                    browser.evaluate("document.querySelector('details.turn').open = true")
                if folder:
                    browser.screenshot(folder / f"{name}-{size}-{scheme}.png")
                wide = browser.evaluate("document.documentElement.scrollWidth")
                if wide > width:
                    culprit = browser.evaluate(
                        "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1"
                        " && !e.closest('.scroll,.row')).map(e => e.outerHTML.slice(0, 120)).slice(0, 3).join(' | ')"
                    )
                    raise SystemExit(f"{name} is {wide} pixels wide on a screen of {width}: {culprit}")
                if "owned" in browser.evaluate("document.title"):
                    raise SystemExit(f"{name}: a text of a trajectory was run as a script")
                if problems := browser.problems(address):
                    raise SystemExit(f"{name}: {problems}")


def use(browser: Browser, address: str, run: Path, step: int) -> None:
    """Checks keys, filters, a link to a turn, and the update of a live page."""
    browser.size(1280, False)
    base = f"{address}/run/{run.name}"
    browser.open(address)
    browser.key("j")
    browser.wait("document.querySelectorAll('tr.item.selected').length == 1", "j selects a run")
    browser.key("Enter")
    browser.wait(f"location.pathname == '/run/{run.name}'", "enter opens it")
    browser.open(f"{base}/step/{step}?show=mixed")
    browser.wait("document.querySelectorAll('section.item').length > 0", "there are mixed groups")
    browser.key("j")
    browser.key("j")
    browser.key("k")
    first = browser.evaluate("document.querySelector('.selected') == document.querySelector('section.item')")
    if not first:
        raise SystemExit("j, j, k does not select the first group")
    browser.key("Enter")
    browser.wait("/group\\/\\d+$/.test(location.pathname) && location.search == '?show=mixed'", "links keep the filter")
    before = browser.evaluate("location.pathname")
    browser.key("n")
    browser.wait(f"location.pathname != {before!r} && location.search == '?show=mixed'", "n leads to the next mixed group")
    browser.key("p")
    browser.wait(f"location.pathname == {before!r}", "p leads back")
    browser.key("u")
    browser.wait(f"location.pathname.endsWith('/step/{step}')", "u leads to the step")
    browser.open(f"{base}/step/{step}/group/0#g0t1u2")
    browser.wait("document.getElementById('g0t1u2').closest('details').open", "a link opens its turn")
    browser.evaluate("document.querySelector('.cell[href$=u0]').click()")
    browser.open(f"{base}/step/{step}")
    browser.evaluate(
        "(() => { const s = document.querySelector('select[name=show]'); s.value = 'failed';"
        " s.dispatchEvent(new Event('change', { bubbles: true })); })()"
    )
    browser.wait("location.search.includes('show=failed')", "a filter is applied when it is chosen")
    browser.open(base)
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(synthetic_run.metrics(step + 7) + "\n")
    browser.wait(f"document.querySelector('table.steps').textContent.includes('{step + 7}')", "the page follows the run")
    if problems := browser.problems(address):
        raise SystemExit(f"{problems}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("turnwise")
    options.add_argument("--screenshots", type=Path)
    options.add_argument("--run", type=Path)
    options.add_argument("--base", default="", help="with --run: /run/NAME of a folder of runs")
    options.add_argument("--step", type=int, default=1, help="with --run: the step to look at")
    options.add_argument("--option", action="append", default=[], help="with --run: passed on to turnwise view")
    args = options.parse_args()
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        print(f"skipped: none of {', '.join(BROWSERS)} is in PATH")
        return
    if args.screenshots:
        args.screenshots.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run, steps = args.run, args.step
        if run is None:
            steps = 3
            run = Path(folder) / "runs"
            small = ["x", "--hostile", "--steps", str(steps), "--groups", "12", "--samples", "4", "--turns", "4"]
            synthetic_run.write(run / "hostile", synthetic_run.parser().parse_args(small))
        server, address = serve(args.turnwise, run, args.option)
        browser = Browser(path, str(Path(folder) / "profile"))
        try:
            base = args.base if args.run else "/run/hostile"
            look(browser, address, pages(address, base, steps), args.screenshots)
            if args.run is None:
                use(browser, address, run / "hostile", steps)
        finally:
            browser.close()
            server.terminate()
            server.wait()
    print("the pages are sound")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
