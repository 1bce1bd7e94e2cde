// A Node service with workers that each load the same data: a table of bytes, and a catalogue of objects.
//
// Bytes are the same in every worker wherever they lie, so KSM merges them. Objects hold addresses, and every worker of
// Node's cluster is a program of its own with its own random addresses: most of its heap differs, unless the addresses
// are made the same (docs/how-to/hpc.md). At the end each worker goes through all it holds. Prints "ready"
// and one JSON object.
//
//     ksmith run -- node service.js 4 30        (workers, seconds; 0: until standard input ends)
'use strict';
const cluster = require('cluster');
const crypto = require('crypto');
const fs = require('fs');

const TABLE_MIB = 32;
const RECORDS = 60000;

// Bytes that depend on nothing but their place: a stream cipher's.
function table() {
  const cipher = crypto.createCipheriv('aes-128-ctr', Buffer.alloc(16, 1), Buffer.alloc(16, 2));
  return cipher.update(Buffer.alloc(TABLE_MIB << 20));
}

function record(number) {
  return { name: `item ${number}`, price: (number * 7) % 1000, tags: [number % 10, number % 7] };
}

function catalogue() {
  const all = new Map();
  for (let number = 0; number < RECORDS; number++) all.set(number, record(number));
  return all;
}

function digest(bytes, objects) {
  const whole = crypto.createHash('sha256').update(bytes);
  for (const [number, entry] of objects) whole.update(`${number} ${JSON.stringify(entry)}`);
  return whole.digest('hex');
}

function figure(file, key) {
  try {
    const line = fs.readFileSync(file, 'utf8').split('\n').find((line) => line.startsWith(key));
    return line ? Number(line.slice(key.length).trim().split(' ')[0]) : 0;
  } catch {
    return 0; // An older kernel.
  }
}

function memory() {
  const rollup = '/proc/self/smaps_rollup';
  const stat = '/proc/self/ksm_stat';
  return {
    rss_bytes: figure(rollup, 'Rss:') * 1024,
    pss_bytes: figure(rollup, 'Pss:') * 1024,
    merged_bytes: (figure(stat, 'ksm_merging_pages') + figure(stat, 'ksm_zero_pages')) * 4096,
  };
}

if (cluster.isPrimary) {
  const workers = Number(process.argv[2] || 4);
  const seconds = Number(process.argv[3] ?? 20);
  const expected = digest(table(), catalogue());
  const total = { workers, wrong: 0, rss_bytes: 0, pss_bytes: 0, merged_bytes: 0 };
  const askAll = () => Object.values(cluster.workers).forEach((worker) => worker.send('all'));
  let ready = 0;
  let answered = 0;
  for (let at = 0; at < workers; at++) {
    cluster.fork().on('message', (said) => {
      if (said === 'ready') {
        if (++ready === workers) {
          console.log('ready');
          if (seconds > 0) setTimeout(askAll, seconds * 1000);
          else process.stdin.on('end', askAll).resume();
        }
        return;
      }
      total.wrong += said.digest === expected ? 0 : 1;
      for (const key of Object.keys(said.memory)) total[key] += said.memory[key];
      if (++answered === workers) {
        console.log(JSON.stringify(total));
        process.exit(total.wrong ? 1 : 0);
      }
    });
  }
} else {
  const held = { bytes: table(), objects: catalogue() };
  process.on('message', () => process.send({ digest: digest(held.bytes, held.objects), memory: memory() }));
  process.send('ready');
}
