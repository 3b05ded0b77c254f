"""asv's site in a real browser: what its graphs show, of a repository of three commits and times by hand."""

import functools
import http.server
import re
import shutil
import threading
from pathlib import Path

import asv_history
import pytest
from asv_history import asv, filed, measured
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

MODULES = Path(__file__).parent / "node_modules"
FROM_CDN = {  # what asv's pages load from elsewhere: the same here
    "jquery-3.3.1.min.js": "jquery/dist/jquery.min.js",
    "jquery.flot.min.js": "flot/jquery.flot.js",
    "jquery.flot.time.min.js": "flot/jquery.flot.time.js",
    "jquery.flot.selection.min.js": "flot/jquery.flot.selection.js",
    "jquery.flot.categories.min.js": "flot/jquery.flot.categories.js",
    "jquery.flot.orderBars.js": "flot-orderbars/js/jquery.flot.orderBars.js",
    "stupidtable.min.js": "stupid-table-plugin/stupidtable.min.js",
    "md5.min.js": "blueimp-md5/js/md5.min.js",
    "bootstrap.min.js": "bootstrap/dist/js/bootstrap.min.js",
    "bootstrap.min.css": "bootstrap/dist/css/bootstrap.min.css",
}
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--window-size=1400,900",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
SECONDS = (1.0e-4, 1.0e-4, 2.0e-4)
SHOTS = Path(__file__).parents[2] / "reports" / "site"


def without_cdn(html):
    """Let a published site take its scripts from itself."""
    if not MODULES.is_dir():
        pytest.fail("no tests/site/node_modules: run 'npm ci --ignore-scripts --prefix tests/site', or 'nox -s site'")

    def local(found):
        name = found[2].rsplit("/", 1)[1]
        shutil.copy(MODULES / FROM_CDN[name], html / name)
        return f'{found[1]}="{name}"'

    index = html / "index.html"
    text, count = re.subn(r'(src|href)="(https://[^"]+\.(?:js|css))"(?: integrity="[^"]*")?', local, index.read_text())
    assert count == len(FROM_CDN)
    index.write_text(text)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of a site of three commits, V9 and V8, the last commit half as fast in V9."""
    place = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for commit, seconds in zip(asv_history.repository(place, 3), SECONDS, strict=True):
            filed(commit, measured(seconds), measured(1.1e-4, version="v8"))
        done = asv("publish")
        assert done.returncode == 0, done.stdout + done.stderr
    html = place / ".asv" / "html"
    without_cdn(html)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=html)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.fail("no chromium and chromedriver on PATH: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    made = webdriver.Chrome(options=options, service=Service(driver))
    made.set_script_timeout(30)
    yield made
    made.quit()


PLOT = """
const plot = $('#main-graph').data('plot');
if (!plot) return null;
const canvas = $('#main-graph canvas.flot-base')[0], pixels = canvas.getContext('2d')
    .getImageData(0, 0, canvas.width, canvas.height).data;
let inked = 0;
for (let i = 3; i < pixels.length; i += 4) inked += pixels[i] > 0;
const known = plot.getData().filter(line => line.data.some(point => point[1] !== null));
return {lines: known.map(line => [line.label, line.data.map(point => point[1])]),
        unit: plot.getAxes().yaxis.options.axisLabel, inked: inked};
"""


def graph(browser, site, benchmark):
    """What a benchmark's page shows: values of each line that has any, the unit, how many pixels were drawn."""
    browser.get("about:blank")
    browser.get(f"{site}#{benchmark}")
    shown = WebDriverWait(browser, 30).until(lambda b: (found := b.execute_script(PLOT)) and found["lines"] and found)
    SHOTS.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(SHOTS / f"{benchmark}.png"))
    return dict(shown["lines"]), shown["unit"], shown["inked"]


@pytest.mark.parametrize(
    ("track", "unit", "values"),
    [
        ("time", "microseconds", [s * 1.003 for s in SECONDS]),
        ("tflops", "TFLOPS", [2 * 4096**3 / (s * 1.003) / 1e12 for s in SECONDS]),
    ],
)
def test_the_graph_of_a_figure_has_a_point_for_each_commit(browser, site, track, unit, values):
    lines, axis, inked = graph(browser, site, f"blackwell_gemm.track_{track}")
    (v9,) = (points for label, points in lines.items() if "v9" in label)
    assert v9 == pytest.approx(values)
    assert len(lines) == 2  # V8 too, and none of what was not measured
    assert inked > 1000
    assert axis == unit
    legend = browser.find_element(By.CSS_SELECTOR, "#main-graph .legend").text
    assert "version-v9" in legend
    assert "blackwell_gemm" in browser.find_element(By.ID, "title").text


def test_the_step_is_on_the_page_of_regressions_for_time_alone(browser, site):
    browser.get("about:blank")
    browser.get(f"{site}#/regressions")
    body = browser.find_element(By.ID, "regressions-body")
    WebDriverWait(browser, 30).until(lambda _: "track_time" in body.text)
    assert "v9" in body.text
    assert "v8" not in body.text
    assert "tflops" not in body.text


def test_no_script_failed(browser, site):
    graph(browser, site, "blackwell_gemm.track_time")
    assert not [line for line in browser.get_log("browser") if "graphs/" not in line["message"]]
