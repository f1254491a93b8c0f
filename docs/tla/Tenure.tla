------------------------------- MODULE Tenure -------------------------------
(* How tenure keeps one leader at a time: the protocol, small enough to read   *)
(* in one sitting, and exact enough for a machine to try every order of events.*)
(*                                                                             *)
(* To run it: docs/tla/check. It fetches the checker (TLC) and shows that every *)
(* promise below holds, and that it stops holding when a rule is left out.      *)
(*                                                                             *)
(* How to read TLA+, in five lines:                                            *)
(*  - A state gives each VARIABLE a value. x' is the value of x in the next one.*)
(*  - An action such as Send(n) says which next states are possible: every line *)
(*    after /\ must be true. \/ is "or". UNCHANGED x says that x stays.         *)
(*  - [f EXCEPT ![n] = v] is f with another value at n; @ is the old value.     *)
(*  - Next is all that can happen. TLC walks through every order of it.         *)
(*  - An INVARIANT is a promise: it must be true in every state that is reached.*)
(*                                                                             *)
(* Time: no clock shows anything here. We count only what is left until        *)
(* something ends, or what has passed since it began, in ticks. Nodes' clocks   *)
(* run at nearly the same rate as true time: each may gain or lose one tick in  *)
(* any Ttl of true time. That is the drift bound.                               *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    Nodes,      \* the processes that want to lead
    Ttl,        \* how long a lease lasts, in ticks
    TenuresMax, \* how many tenures are granted before the story ends
    LateMax,    \* how many requests may be under way that nobody waits for
    OwnClock,   \* TRUE: the store judges expiry by its clock. FALSE: candidates watch
    Bug         \* "none", or the rule that is left out (see Bugs)

Bugs == { "none", "deadline_from_answer", "drift_not_subtracted", "release_without_token",
          "no_compare", "watched_from_send_time", "unknown_is_yes", "token_reset" }
ASSUME Bug \in Bugs /\ Ttl >= 2 /\ TenuresMax >= 1

VARIABLES
    phase,   \* per node: "campaigning", "leading" or "releasing"
    tenure,  \* per node: the token that it leads with or gives back; 0 if none
    left,    \* per node: ticks of its own clock until its deadline; 0 if it does not lead
    call,    \* per node: the one call that it waits for
    seen,    \* per node: for how many ticks it has watched the record as it is now; -1: not
    steady,  \* per node: true ticks until its clock may gain or lose one again
    attempt, \* per node: the number of its present attempt to lead
    record,  \* the store: holder, token, attempt; `left` is the store's own count
    late,    \* requests that may still arrive, once or many times, unasked for
    granted, \* how many tenures were granted
    wrong    \* promises that one state cannot show: they are noted here when broken

vars == <<phase, tenure, left, call, seen, steady, attempt, record, late, granted, wrong>>
node_vars == <<phase, tenure, left, seen, steady, attempt>>

-----------------------------------------------------------------------------
(* The rules of time, and nothing but these three, make the promise.           *)

\* The deadline is the moment BEFORE the request was sent, plus ttl, less the drift bound.
DeadlineAfter == IF Bug = "drift_not_subtracted" THEN Ttl ELSE Ttl - 1
StillLeft(age) == IF Bug = "deadline_from_answer" THEN DeadlineAfter ELSE DeadlineAfter - age

\* A store without a clock: a record has ended when it was SEEN unchanged for its ttl plus
\* the drift bound, counted from the moment that the answer came.
WatchedTerm == Ttl + 1
SeenAtFirst(age) == IF Bug = "watched_from_send_time" THEN age ELSE 0

-----------------------------------------------------------------------------
NoCall == [kind |-> "none", token |-> 0, attempt |-> 0, ended |-> FALSE,
           age |-> 0, answer |-> "none", got |-> 0]
Free == [holder |-> "nobody", token |-> 0, attempt |-> 0, left |-> 0]

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b

Init ==
    /\ phase = [n \in Nodes |-> "campaigning"]
    /\ tenure = [n \in Nodes |-> 0]
    /\ left = [n \in Nodes |-> 0]
    /\ call = [n \in Nodes |-> NoCall]
    /\ seen = [n \in Nodes |-> -1]
    /\ steady = [n \in Nodes |-> 0]
    /\ attempt = [n \in Nodes |-> 1]
    /\ record = Free
    /\ late = {}
    /\ granted = 0
    /\ wrong = {}

-----------------------------------------------------------------------------
(* Time passes: for the store by one tick, for each node's clock by 0, 1 or 2. *)

Counts(n) == left[n] > 0 \/ seen[n] >= 0 \/ call[n].kind # "none"
Steps(n) == IF steady[n] = 0 /\ Counts(n) THEN {0, 1, 2} ELSE {1}

Tick ==
    \E step \in [Nodes -> {0, 1, 2}] :
        /\ \A n \in Nodes : step[n] \in Steps(n)
        /\ steady' = [n \in Nodes |-> IF step[n] # 1 THEN Ttl - 1 ELSE Max(steady[n] - 1, 0)]
        /\ left' = [n \in Nodes |-> Max(left[n] - step[n], 0)]
        \* A tenure ends by itself: nothing has to be scheduled for it.
        /\ phase' = [n \in Nodes |-> IF left[n] > 0 /\ left'[n] = 0
                                      THEN "campaigning" ELSE phase[n]]
        /\ tenure' = [n \in Nodes |-> IF left[n] > 0 /\ left'[n] = 0 THEN 0 ELSE tenure[n]]
        /\ seen' = [n \in Nodes |-> IF seen[n] < 0 THEN -1 ELSE Min(seen[n] + step[n], WatchedTerm)]
        /\ call' = [n \in Nodes |-> IF call[n].kind \in {"acquire", "renew"}
                                     THEN [call[n] EXCEPT !.age = Min(@ + step[n], Ttl)]
                                     ELSE call[n]]
        /\ record' = IF ~OwnClock \/ record.holder = "nobody" THEN record
                     ELSE IF record.left = 1 THEN Free ELSE [record EXCEPT !.left = @ - 1]
        /\ UNCHANGED <<attempt, late, granted, wrong>>

-----------------------------------------------------------------------------
(* What the store does, in one atomic step.                                    *)

\* Every write makes all earlier versions old: whoever watched begins again, and an
\* acquire that names an old version as ended names nothing. (An old version never comes
\* back, so we need no version numbers: a request names the present one, or none.)
OldRequest(r) == IF Bug = "no_compare" THEN r ELSE [r EXCEPT !.ended = FALSE]
Forget(calls) == [m \in Nodes |->
    LET old == OldRequest(calls[m]) IN
    IF old.answer = "held" THEN [old EXCEPT !.got = 0] ELSE old]

Request(n) == [from |-> n, kind |-> call[n].kind, token |-> call[n].token,
               attempt |-> call[n].attempt, ended |-> call[n].ended]

\* Execute request r; `calls` are the calls with the answer put in by Answered, and
\* `rest` the late requests that remain.
Answered(r, calls, waiting, answer, got) ==
    IF waiting THEN [calls EXCEPT ![r.from].answer = answer, ![r.from].got = got] ELSE calls

Write(new, calls, rest) ==
    /\ record' = [new EXCEPT !.left = IF OwnClock /\ new.holder # "nobody" THEN Ttl ELSE 0]
    /\ call' = Forget(calls)
    /\ late' = { OldRequest(r) : r \in rest }
    /\ seen' = [n \in Nodes |-> -1]

NoWrite(calls, rest) == call' = calls /\ late' = rest /\ UNCHANGED <<record, seen>>

IsMine(r) == record.holder = r.from /\ record.token = r.token

Acquire(r, waiting, rest) ==
    IF record.holder = r.from /\ record.attempt = r.attempt
    THEN \* The same attempt again: the same tenure again, and its term begins anew.
         /\ Write(record, Answered(r, call, waiting, "granted", record.token), rest)
         /\ UNCHANGED <<granted, wrong>>
    ELSE IF record.holder # "nobody" /\ ~r.ended
    THEN \* Somebody has it. `got` is 1: the version in the answer is the present one.
         /\ NoWrite(Answered(r, call, waiting, "held", IF OwnClock THEN 0 ELSE 1), rest)
         /\ UNCHANGED <<granted, wrong>>
    ELSE \* Nobody has it, or the present version was named as ended: a new tenure.
         LET token == IF Bug = "token_reset" THEN record.token + 1 ELSE granted + 1 IN
         /\ granted < TenuresMax
         /\ granted' = granted + 1
         /\ wrong' = IF token <= granted THEN wrong \union {"token"} ELSE wrong
         /\ Write([holder |-> r.from, token |-> token, attempt |-> r.attempt, left |-> 0],
                  Answered(r, call, waiting, "granted", token), rest)

Renew(r, waiting, rest) ==
    /\ IF IsMine(r)
       THEN Write(record, Answered(r, call, waiting, "renewed", 0), rest)
       ELSE NoWrite(Answered(r, call, waiting, "lost", 0), rest)
    /\ UNCHANGED <<granted, wrong>>

Release(r, waiting, rest) ==
    /\ IF IsMine(r) \/ (Bug = "release_without_token" /\ record.holder = r.from)
       THEN /\ Write(Free, Answered(r, call, waiting, "released", 0), rest)
            /\ wrong' = IF IsMine(r) THEN wrong ELSE wrong \union {"touched"}
       ELSE /\ NoWrite(Answered(r, call, waiting, "released", 0), rest)
            /\ UNCHANGED wrong
    /\ UNCHANGED granted

Execute(r, waiting, rest) ==
    /\ \/ r.kind = "acquire" /\ Acquire(r, waiting, rest)
       \/ r.kind = "renew" /\ Renew(r, waiting, rest)
       \/ r.kind = "release" /\ Release(r, waiting, rest)
    /\ UNCHANGED <<phase, tenure, left, steady, attempt>>

\* A request arrives; a copy of it may stay under way (doubled by the network).
Reach(n) ==
    /\ call[n].kind # "none" /\ call[n].answer = "none"
    /\ \E copies \in {{}, {Request(n)}} :
        /\ Cardinality(late \union copies) <= LateMax
        /\ Execute(Request(n), TRUE, late \union copies)

\* A request arrives for which nobody waits any more; it may come yet another time.
ReachLate ==
    \E r \in late : \E rest \in {late, late \ {r}} : Execute(r, FALSE, rest)

-----------------------------------------------------------------------------
(* What a node does. It may do it at any moment, or late, or never: a pause of  *)
(* the process is nothing but a node that takes no step while its clock runs.   *)

Send(n) ==
    /\ call[n].kind = "none"
    /\ call' = [call EXCEPT ![n] =
        CASE phase[n] = "campaigning" ->
                [NoCall EXCEPT !.kind = "acquire", !.attempt = attempt[n],
                               !.ended = (seen[n] >= WatchedTerm)]
          [] phase[n] = "leading" -> [NoCall EXCEPT !.kind = "renew", !.token = tenure[n]]
          [] phase[n] = "releasing" -> [NoCall EXCEPT !.kind = "release", !.token = tenure[n]]]
    /\ UNCHANGED <<node_vars, record, late, granted, wrong>>

Lead(n, token, ticks) ==
    /\ phase' = [phase EXCEPT ![n] = "leading"]
    /\ tenure' = [tenure EXCEPT ![n] = token]
    /\ left' = [left EXCEPT ![n] = ticks]
    /\ attempt' = [attempt EXCEPT ![n] = @ + 1]
    /\ seen' = [seen EXCEPT ![n] = -1]

Campaign(n) ==
    /\ phase' = [phase EXCEPT ![n] = "campaigning"]
    /\ tenure' = [tenure EXCEPT ![n] = 0]
    /\ left' = [left EXCEPT ![n] = 0]
    /\ UNCHANGED <<attempt, seen>>

StayAsItIs == UNCHANGED <<phase, tenure, left, attempt, seen>>

Receive(n) ==
    LET c == call[n] IN
    /\ c.answer # "none"
    /\ call' = [call EXCEPT ![n] = NoCall]
    /\ CASE c.answer = "granted" ->
                \* An answer that lay about for too long is no leadership: ask again, with
                \* the same attempt, and get the same tenure with a deadline to keep.
                IF StillLeft(c.age) > 0 THEN Lead(n, c.got, StillLeft(c.age)) ELSE StayAsItIs
         [] c.answer = "held" ->
                /\ seen' = [seen EXCEPT ![n] =
                        IF c.got = 1 /\ @ < 0 THEN SeenAtFirst(c.age) ELSE @]
                /\ UNCHANGED <<phase, tenure, left, attempt>>
         [] c.answer = "renewed" ->
                \* Only while it still leads: what has ended never becomes valid again.
                IF phase[n] = "leading" /\ tenure[n] = c.token
                THEN /\ left' = [left EXCEPT ![n] = Max(@, StillLeft(c.age))]
                     /\ UNCHANGED <<phase, tenure, attempt, seen>>
                ELSE StayAsItIs
         [] c.answer = "lost" -> IF phase[n] = "leading" THEN Campaign(n) ELSE StayAsItIs
         [] c.answer = "released" -> Campaign(n)
    /\ UNCHANGED <<steady, record, late, granted, wrong>>

\* No answer in time. Whether it worked is unknown, and unknown is neither yes nor no.
\* The request may be lost, or stay under way and arrive when nobody waits any more.
GiveUp(n) ==
    LET c == call[n] IN
    /\ c.kind # "none"
    /\ call' = [call EXCEPT ![n] = NoCall]
    /\ \E copies \in {{}, IF c.answer = "none" THEN {Request(n)} ELSE {}} :
        /\ Cardinality(late \union copies) <= LateMax
        /\ late' = late \union copies
    /\ IF Bug = "unknown_is_yes" /\ phase[n] = "leading" /\ c.kind = "renew"
       THEN /\ left' = [left EXCEPT ![n] = Max(@, StillLeft(c.age))]
            /\ UNCHANGED <<phase, tenure, attempt, seen>>
       ELSE StayAsItIs
    /\ UNCHANGED <<steady, record, granted, wrong>>

\* First the leader stops believing, then it gives the lease back, by holder and token.
Resign(n) ==
    /\ phase[n] = "leading"
    /\ phase' = [phase EXCEPT ![n] = "releasing"]
    /\ left' = [left EXCEPT ![n] = 0]
    /\ UNCHANGED <<tenure, call, seen, steady, attempt, record, late, granted, wrong>>

\* A node that cannot give it back leaves it to run out.
LeaveIt(n) ==
    /\ phase[n] = "releasing"
    /\ Campaign(n)
    /\ UNCHANGED <<call, steady, record, late, granted, wrong>>

-----------------------------------------------------------------------------
Next ==
    \/ Tick
    \/ ReachLate
    \/ \E n \in Nodes : Send(n) \/ Reach(n) \/ Receive(n) \/ GiveUp(n) \/ Resign(n) \/ LeaveIt(n)

Spec == Init /\ [][Next]_vars

\* Nodes have no ranks: TLC need not try a story again with their names exchanged.
Symmetry == Permutations(Nodes)

-----------------------------------------------------------------------------
(* The promises.                                                               *)

Valid(n) == left[n] > 0   \* by its own deadline and its own clock alone

OneAtATime == \A a, b \in Nodes : Valid(a) /\ Valid(b) => a = b

\* Whoever believes has the record; so what is unknown is never believed.
Backed == \A n \in Nodes : Valid(n) => record.holder = n /\ record.token = tenure[n]

TokensGrow == "token" \notin wrong

NobodyFreesAnothers == "touched" \notin wrong

(* And a story that must be possible, or the promises would be cheap. TLC finds *)
(* it as the way to break this "promise": two tenures, of two nodes, one after  *)
(* the other.                                                                   *)
NoHandover == ~ \E a, b \in Nodes : a # b /\ Valid(b) /\ tenure[b] = 2 /\ attempt[a] > 1
=============================================================================
