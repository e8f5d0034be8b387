-- Applies a batch of operations to the shared state, as account.py does in Python, and returns one result for each.
-- KEYS[1] begins all names, so that a cluster keeps them in one place. ARGV: the operations as JSON, a new start id.

local prefix, operations, start = KEYS[1], cjson.decode(ARGV[1]), ARGV[2]
local KEPT, KEPT_SECONDS = tonumber(ARGV[3]), tonumber(ARGV[4])
local FORGET_SECONDS, SILENT_SECONDS = tonumber(ARGV[5]), tonumber(ARGV[6])

local function text(number) return string.format("%.17g", number) end

local function number_of(key, field) return tonumber(redis.call("HGET", key, field) or 0) end

local function release(key, leases, member)
  if redis.call("ZREM", leases, member) == 1 then
    local tokens, money = string.match(member, "|([^|]*)|([^|]*)$")
    redis.call("HINCRBYFLOAT", key, "held_tokens", "-" .. tokens)
    redis.call("HINCRBYFLOAT", key, "held_money", "-" .. money)
  end
  if redis.call("ZCARD", leases) == 0 then -- no rest of rounding stays
    redis.call("HSET", key, "held_tokens", 0, "held_money", 0)
  end
end

local function spent(key, per, period)
  local stored = redis.call("HGET", key, per)
  if not stored or stored < period then return period, 0, 0 end
  return stored, number_of(key, per .. "_tokens"), number_of(key, per .. "_money")
end

local function left_now(key, ask)
  local left = number_of(key, "left")
  if redis.call("HGET", key, "rate") ~= text(ask.per_minute) then return ask.burst end
  return math.min(ask.burst, left + math.max(0, ask.at - number_of(key, "at")) * ask.per_minute / 60)
end

local function refused(ask, left, tokens, money, held_tokens, held_money, places)
  if ask.tokens and tokens >= ask.tokens then return "tokens" end
  if ask.money and money >= ask.money then return "money" end
  if ask.at_once and places >= ask.at_once then return "at_once" end
  if ask.tokens and tokens + held_tokens >= ask.tokens then return "reserved" end
  if ask.money and money + held_money >= ask.money then return "reserved" end
  if ask.per_minute and left < 1 then return "rate" end
  return ""
end

local apply = {}

function apply.admit(ask)
  local key, leases = prefix .. ":key:" .. ask.key, prefix .. ":leases:" .. ask.key
  for _, member in ipairs(redis.call("ZRANGEBYSCORE", leases, "-inf", text(ask.at))) do release(key, leases, member) end
  local left = ask.per_minute and left_now(key, ask) or 0
  local _, tokens, money = spent(key, ask.per, ask.period)
  local held_tokens, held_money = number_of(key, "held_tokens"), number_of(key, "held_money")
  local why = refused(ask, left, tokens, money, held_tokens, held_money, redis.call("ZCARD", leases))
  if why == "" and ask.lease then
    redis.call("ZADD", leases, text(ask["until"]), ask.lease)
    held_tokens, held_money = held_tokens + ask.held_tokens, held_money + ask.held_money
    redis.call("HSET", key, "held_tokens", text(held_tokens), "held_money", text(held_money))
  end
  if ask.per_minute then
    if why == "" then left = left - 1 end
    redis.call("HSET", key, "rate", text(ask.per_minute), "left", text(left), "at", text(ask.at))
  end
  local wait = why == "rate" and (1 - left) * 60 / ask.per_minute or 0
  return cjson.encode({ why, wait, math.max(0, left), tokens + held_tokens })
end

function apply.settle(ended)
  local key = prefix .. ":key:" .. ended.key
  redis.call("SADD", prefix .. ":keys", ended.key)
  if ended.lease then release(key, prefix .. ":leases:" .. ended.key, ended.lease) end
  for per, period in pairs(ended.periods) do
    local stored, tokens, money = spent(key, per, period)
    redis.call("HSET", key, per, stored, per .. "_tokens", text(tokens + ended.tokens))
    redis.call("HSET", key, per .. "_money", text(money + ended.money))
  end
  return "null"
end

function apply.wrong_key(wrong)
  local key = prefix .. ":wrong:" .. wrong.address
  local row = redis.call("INCR", key)
  redis.call("EXPIRE", key, FORGET_SECONDS)
  return cjson.encode(row)
end

function apply.publish(news)
  for _, event in ipairs(news.events) do
    local number = redis.call("INCR", prefix .. ":count")
    redis.call("XADD", prefix .. ":events", "MAXLEN", KEPT, number .. "-0", "event", event)
  end
  redis.call("EXPIRE", prefix .. ":events", KEPT_SECONDS)
  local board = prefix .. ":board:" .. news.process
  redis.call("SET", board, news.board, "EX", SILENT_SECONDS)
  redis.call("SADD", prefix .. ":boards", board)
  return "null"
end

function apply.read(ask)
  redis.call("SET", prefix .. ":start", start, "NX")
  local count = tonumber(redis.call("GET", prefix .. ":count") or 0)
  local events, boards = {}, {}
  for _, entry in ipairs(redis.call("XRANGE", prefix .. ":events", ask.since + 1 .. "-0", "+")) do
    events[#events + 1] = entry[2][2]
  end
  for _, name in ipairs(redis.call("SMEMBERS", prefix .. ":boards")) do
    local board = redis.call("GET", name)
    if board then boards[#boards + 1] = board else redis.call("SREM", prefix .. ":boards", name) end
  end
  return { redis.call("GET", prefix .. ":start"), count, events, boards }
end

function apply.spent(_)
  local all = {}
  for _, name in ipairs(redis.call("SMEMBERS", prefix .. ":keys")) do
    for _, per in ipairs({ "day", "month", "total" }) do
      local key = prefix .. ":key:" .. name
      local stored = redis.call("HGET", key, per)
      if stored then
        local tokens, money = redis.call("HGET", key, per .. "_tokens"), redis.call("HGET", key, per .. "_money")
        all[#all + 1] = { name, per, stored, tokens, money }
      end
    end
  end
  return all
end

local results = {}
for place, operation in ipairs(operations) do results[place] = apply[operation.kind](operation) end
return results
