-- The whole fleet: rows, contents, contents on two or more hosts, and the rows that one host for all would merge.
WITH per_content AS (
    SELECT fingerprint, COUNT(*) AS guests, COUNT(DISTINCT host) AS hosts FROM samples WHERE copies > 0 GROUP BY fingerprint
)
SELECT
    SUM(guests) AS held,
    COUNT(*) AS contents,
    SUM(CASE WHEN hosts >= 2 THEN 1 ELSE 0 END) AS on_hosts,
    SUM(guests - 1) AS surplus,
    SUM(guests - hosts) AS surplus_on_hosts,
    MAX(guests) AS most
FROM per_content
