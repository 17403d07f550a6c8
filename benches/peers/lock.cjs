// Locks of redlock on node. URL LOCKS TTL_MS; then `pairs N` or `renewals N` on stdin, seconds on stdout.
const modules = `${require('path').resolve(process.env.PEERS)}/node_modules`
const Redis = require(`${modules}/ioredis`)
const Redlock = require(`${modules}/redlock`)

const [url, locks, ttl] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])]
const redlock = new Redlock([new Redis(url)], { retryCount: 0 })
const keys = name =>
  Array.from({ length: locks }, (_, n) => `${name}:2f1c8a4e-0000-4000-8000-${String(n).padStart(12, '0')}`)
const names = keys('node-redlock')

async function batches(list, atOnce, each) {
  const results = []
  for (let from = 0; from < list.length; from += atOnce) {
    results.push(...(await Promise.all(list.slice(from, from + atOnce).map(each))))
  }
  return results
}

async function main() {
  let held = await batches(keys('node-redlock-held'), 100, key => redlock.lock(key, ttl))
  const verbs = {
    pairs: atOnce => batches(names, atOnce, async key => (await redlock.lock(key, ttl)).unlock()),
    renewals: async atOnce => { held = await batches(held, atOnce, lock => lock.extend(ttl)) },
  }
  console.log('ready')
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    const [what, atOnce] = line.split(' ')
    const began = process.hrtime.bigint()
    await verbs[what](Number(atOnce))
    console.log(Number(process.hrtime.bigint() - began) / 1e9)
  }
}

main()
