#!/usr/bin/env python3
"""Tests the page at / in headless Chromium, against a server of recorded answers.

Usage: page_test.py [FOLDER]    writes screenshots to FOLDER. Ends with 77 if Chromium is missing.
"""
import pathlib
import sys

sys.dont_write_bytecode = True
import browser
import fake_server

ALL = "".join(fake_server.ANSWER)


def equal(value, expected):
    assert value == expected, f"{value!r} is not {expected!r}"


def say(page, text):
    page.run("document.getElementById('say').focus()")
    page.write(text)
    page.key("Enter", "\r")


def wait_for_end(page):
    page.until("!document.getElementById('send').hidden")


def last(page, kind):
    return page.run(f"[...document.querySelectorAll('.message.{kind} > span:last-child')].at(-1).textContent")


def test_answer_is_text(page, server):
    hostile = "<img src=x onerror=window.harmed=1> & say"
    say(page, hostile)
    wait_for_end(page)
    equal(last(page, "user"), hostile)
    equal(last(page, "assistant"), ALL)
    equal(page.run("document.getElementById('model').textContent"), "a<b>model")
    equal(page.run("document.querySelectorAll('#log img, #log b, #log script, #canvas image, #canvas script').length"), 0)
    equal(page.run("window.harmed"), None)
    request = server.http.requests[-1]
    equal(request["messages"], [{"role": "user", "content": hostile}])
    equal(request["speculation"], {"trees": True})
    assert "temperature" not in request and "seed" not in request, request
    equal(request["max_completion_tokens"], 512)


def test_tree_is_drawn(page, server):
    page.until("document.querySelectorAll('#canvas .node').length === 10")
    equal(page.run("document.querySelectorAll('#canvas .node.accepted').length"), 4)
    equal(page.run("document.querySelectorAll('#canvas .node.lookup').length"), 4)
    equal(page.run("document.querySelectorAll('#canvas .node.bonus').length"), 1)
    equal(page.run("document.querySelectorAll('#canvas path').length"), 10)
    # The accepted path is a straight line.
    equal(page.run("new Set([...document.querySelectorAll('#canvas .node.accepted rect')].map(r => r.getAttribute('y'))).size"), 1)
    # No two boxes lie on each other.
    equal(page.run("new Set([...document.querySelectorAll('#canvas rect')].map(r => r.getAttribute('x') + ' ' + r.getAttribute('y'))).size"), 10)
    equal(page.run("document.getElementById('speed').textContent"), "45.0")
    equal(page.run("document.getElementById('length').textContent"), "4.00")
    equal(page.run("document.getElementById('place').textContent"), "step 6 of 6")
    page.run("document.getElementById('step').value = 2; document.getElementById('step').dispatchEvent(new Event('input'))")
    equal(page.run("document.getElementById('place').textContent"), "step 2 of 6")
    page.until("document.querySelector('#canvas .node text').textContent === 'are·<b>grown<…'")


def test_keyboard(page, server):
    page.run("document.querySelector('#canvas .node').focus()")
    before = page.run("document.getElementById('detail').textContent")
    assert "accepted, draft 0.900, target 0.500, depth 1" in before, before
    page.key("ArrowRight")
    after = page.run("document.getElementById('detail').textContent")
    assert "draft 0.450" in after, after
    equal(page.run("document.querySelectorAll('#canvas [tabindex=\"0\"]').length"), 1)
    equal(page.run("document.activeElement.getAttribute('aria-label')"), after)


def test_conversation_and_settings(page, server):
    page.run("document.getElementById('toggle').click()")
    for name, value in (("temperature", "0"), ("seed", "7"), ("system", "Be short"), ("policy", "chain"),
                        ("lookup", "text"), ("size", "8"), ("most", "20")):
        page.run(f"document.getElementById('{name}').value = '{value}'")
    page.run("document.getElementById('toggle').click()")
    say(page, "think")
    wait_for_end(page)
    equal(page.run("document.querySelector('#log details span').textContent"), "Well, <i>hm</i>")
    request = server.http.requests[-1]
    equal([m["role"] for m in request["messages"]], ["system", "user", "assistant", "user"])
    equal(request["messages"][2]["content"], ALL)
    equal(request["speculation"], {"trees": True, "policy": "chain", "lookup": "text", "size": 8})
    equal((request["temperature"], request["seed"], request["max_completion_tokens"]), (0, 7, 20))


def test_stop(page, server):
    say(page, "long")
    page.until("document.querySelectorAll('.message.assistant').length === 3 && "
               "[...document.querySelectorAll('.message.assistant')].at(-1).textContent.includes('on and on')")
    page.key("Escape")
    wait_for_end(page)
    text = last(page, "assistant")
    assert "on and" in text and len(text) < 2800, len(text)
    for _ in range(200):
        if server.http.left:
            break
        page.run("new Promise(done => setTimeout(done, 50))")
    equal(server.http.left, 1)


def test_refusal(page, server):
    say(page, "refuse")
    wait_for_end(page)
    equal(last(page, "error"), "temperature: must be <at most> 2")
    equal(page.run("document.getElementById('say').value"), "refuse")
    page.run("document.getElementById('say').value = ''")
    say(page, "again")
    wait_for_end(page)
    equal(server.http.requests[-1]["messages"][-1], {"role": "user", "content": "again"})
    equal(server.http.requests[-1]["messages"][-2]["role"], "assistant")


def test_new_chat(page, server):
    say(page, "long")
    page.until("document.getElementById('send').hidden")
    page.run("document.getElementById('clear').click()")
    wait_for_end(page)
    equal(page.run("document.querySelectorAll('.message').length"), 0)
    equal(page.run("document.querySelectorAll('#canvas svg').length"), 0)
    say(page, "hello")
    wait_for_end(page)
    equal([m["role"] for m in server.http.requests[-1]["messages"]], ["system", "user"])


def test_fits(page, server):
    for width, height in ((1280, 800), (390, 800), (320, 600)):
        page.size(width, height)
        equal(page.run("document.scrollingElement.scrollWidth <= innerWidth"), True)
        equal(page.run("document.scrollingElement.scrollHeight <= innerHeight"), True)
        equal(page.run("document.getElementById('send').getBoundingClientRect().bottom <= innerHeight"), True)
    page.size(1280, 800)


def screenshots(page, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        for name, width in (("wide", 1280), ("narrow", 390)):
            page.size(width, 800)
            page.run("document.querySelector('#log').scrollTop = 1e6")
            page.screenshot(folder / f"{scheme}-{name}.png")
    page.run("document.getElementById('toggle').click()")
    page.screenshot(folder / "dark-narrow-settings.png")
    page.size(1280, 800)
    page.screenshot(folder / "dark-wide-settings.png")


def main():
    if browser.chromium() is None:
        print("skipped: chromium is not installed")
        return 77
    with fake_server.FakeServer() as server, browser.Browser() as page:
        page.size(1280, 800)
        page.open(server.url)
        for test in (test_answer_is_text, test_tree_is_drawn, test_keyboard, test_conversation_and_settings,
                     test_stop, test_refusal, test_new_chat, test_fits):
            test(page, server)
            print(f"{test.__name__}: passed")
        # The refused request is the only error that the browser may have seen.
        problems = [one for one in page.problems if "400" not in one]
        assert not problems, problems
        if len(sys.argv) > 1:
            screenshots(page, pathlib.Path(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
