-- What the functions may do: read and write the tables of the store; never change them, nor say which version they are.
GRANT USAGE ON SCHEMA infinity TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON
    infinity.threads, infinity.entries, infinity.summaries, infinity.calls, infinity.inbox, infinity.commits,
    infinity.effects, infinity.deferred, infinity.choices
TO {role};
