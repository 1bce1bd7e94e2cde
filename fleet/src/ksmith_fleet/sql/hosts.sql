-- What each host's guests share: the contents of several guests, and the frames that remain once KSM has merged them.
WITH joined AS (
    SELECT
        host,
        GREATEST(guests - 1, 0) AS shared,
        apart - CAST(CEIL(pages / settings.max_sharing) AS BIGINT) AS joined,
        deviation
    FROM on_host CROSS JOIN settings
)
SELECT
    host,
    SUM(shared) AS shared,
    SUM(shared * shared) AS shared_squares,
    SUM(joined) AS joined,
    SUM(POWER(deviation + joined, 2)) AS squares
FROM joined
GROUP BY host
