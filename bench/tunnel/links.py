#!/usr/bin/env python3
"""Measures litz tunnel over emulated links of unlike rates, delays and losses. Needs root, iperf3 and ip.

    bench/tunnel/links.py LITZ [OPTION...] LINKS...

LINKS is a list of links, RATE@DELAY[/LOSS][~JITTER] in Mb/s, ms, percent and ms, with + between them:
50@10+20@60, 100@5/1+20@40~5. Each is measured with each kind of flows (--flows 1,8), congestion control of the
programs (--cc cubic,bbr) and mode (--mode packets,terminated): all links together, and each link alone. A line has
the rate of all, of the best alone and of the sum of all alone in Mb/s, and the two ratios. --down measures from the
server to the client. --two LITZ measures a second command in turns.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument('litz')
parser.add_argument('links', nargs='+')
parser.add_argument('--flows', default='1,8')
parser.add_argument('--cc', default='cubic')
parser.add_argument('--mode', default='packets')
parser.add_argument('--seconds', type=int, default=10)
parser.add_argument('--skip', type=int, default=3, help='seconds at the beginning that do not count')
parser.add_argument('--queue', default='50ms', help='of each link')
parser.add_argument('--down', action='store_true')
parser.add_argument('--together', action='store_true', help='all links only')
parser.add_argument('--status', action='store_true', help='print what the client says of its paths at the end')
parser.add_argument('--option', action='append', default=[], help='of both ends')
parser.add_argument('--two', help='a second command, in turns')
options = parser.parse_args()


def parsed(text):
    links = []
    for link in text.split('+'):
        match = re.fullmatch(r'([\d.]+)@([\d.]+)(?:/([\d.]+))?(?:~([\d.]+))?', link)
        assert match, f'{link} is no link'
        links.append(match.groups())
    return links


class World:
    """Two hosts, links between them, and a tunnel."""

    def __init__(self, litz, links, mode):
        self.litz, self.programs = litz, []
        self.a, self.b = (f'links-{side}-{os.getpid()}' for side in 'ab')
        self.folder = tempfile.TemporaryDirectory()
        try:
            self.begin(litz, links, mode)
        except BaseException:
            self.close()
            raise

    def begin(self, litz, links, mode):
        for name in (self.a, self.b):
            subprocess.run(['ip', 'netns', 'add', name], check=True)
            subprocess.run(['ip', '-n', name, 'link', 'set', 'lo', 'up'], check=True)
        texts = []
        for number, (rate, delay, loss, jitter) in enumerate(links):
            text = f'name=l{number},left=10.9.{number}.1/24,right=10.9.{number}.2/24,rate={rate}Mb/s,delay={delay}ms'
            text += f',queue={options.queue}' + (f',loss={loss}%' if loss else '')
            texts.append('--link=' + text + (f',jitter=uniform {jitter}ms' if jitter else ''))
        sides = [f'--left-netns={self.a}', f'--right-netns={self.b}']
        self.start('links', [litz, 'emulate', 'tun', '--json', *sides, *texts], 'running')
        mine = ['--terminate', 'all'] if mode == 'terminated' else []
        serve = self.start('serve', self.inside(self.b, 'serve') + mine + options.option, 'listening')
        self.start('up', self.inside(self.a, 'up') + mine + options.option + [serve['ticket']], 'up')
        deadline = time.monotonic() + 10
        while len([p for p in self.status()['peers'][0]['paths'] if p['state'] == 'active']) < len(links):
            assert time.monotonic() < deadline, 'a path is missing'
            time.sleep(0.1)

    def inside(self, name, command):
        folder = f'{self.folder.name}/{name}'
        os.makedirs(folder, exist_ok=True)
        return ['ip', 'netns', 'exec', name, 'env', f'RUNTIME_DIRECTORY={folder}', self.litz, 'tunnel', command,
                '--json', '--state-dir', f'{folder}/state']

    def start(self, name, command, event):
        output = f'{self.folder.name}/{name}'
        with open(output, 'w') as file, open(output + '.log', 'w') as log:
            self.programs.append(subprocess.Popen(command, stdout=file, stderr=log))
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for line in open(output):
                if line.endswith('\n') and json.loads(line).get('event') == event:
                    return json.loads(line)
            time.sleep(0.05)
        raise SystemExit(f'{command}: no {event}: {open(output).read()} {open(output + ".log").read()}')

    def status(self):
        folder = f'{self.folder.name}/{self.a}'
        command = ['ip', 'netns', 'exec', self.a, 'env', f'RUNTIME_DIRECTORY={folder}', self.litz, 'tunnel', 'status',
                   '--json']
        output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        return json.loads(output)

    def rate(self, flows, cc):
        """Mb/s of payload that arrived."""
        server = subprocess.Popen(['ip', 'netns', 'exec', self.b, 'iperf3', '-s', '-1', '-J'],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        while not subprocess.run(['ip', 'netns', 'exec', self.b, 'ss', '-Hltn', 'sport = :5201'],
                                 stdout=subprocess.PIPE).stdout:
            time.sleep(0.05)
        command = ['ip', 'netns', 'exec', self.a, 'iperf3', '-J', '-c', '10.76.0.1', '-C', cc, '-P', str(flows), '-t',
                   str(options.seconds), '-O', str(options.skip)] + (['-R'] if options.down else [])
        client = json.loads(subprocess.run(command, stdout=subprocess.PIPE).stdout)
        report = json.loads(server.communicate()[0])
        received = client if options.down else report
        return received['end']['sum_received']['bits_per_second'] / 1e6

    def close(self):
        for program in reversed(self.programs):
            program.send_signal(signal.SIGTERM)
            try:
                program.wait(5)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()
        for name in (self.a, self.b):
            subprocess.run(['ip', 'netns', 'del', name])
        self.folder.cleanup()


def measured(litz, links, mode, flows, cc):
    world = World(litz, links, mode)
    try:
        rate = world.rate(flows, cc)
        if options.status and len(links) > 1:
            print(json.dumps(world.status()['peers'][0]), file=sys.stderr)
        return rate
    finally:
        world.close()


commands = [options.litz] + ([options.two] if options.two else [])
for text in options.links:
    links = parsed(text)
    for mode in options.mode.split(','):
        for cc in options.cc.split(','):
            for flows in map(int, options.flows.split(',')):
                row = f'{text:28} {mode:10} {cc:5} {flows} flows:'
                for number, litz in enumerate(commands):
                    if number == 0:
                        alone = [] if options.together else [measured(litz, [link], mode, flows, cc) for link in links]
                    together = measured(litz, links, mode, flows, cc)
                    row += f'  {together:6.1f}'
                    if alone:
                        best, total = max(alone), sum(alone)
                        row += f'  best {best:6.1f} ({together / best:.2f})  sum {total:6.1f} ({together / total:.2f})'
                print(row, flush=True)
